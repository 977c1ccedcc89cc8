#!/usr/bin/env bash
# Holds the rules on the source text that no compiler checks. Prints each breach; exits 1 if there is one.
#
#   - a file of source has at most 600 lines, README.md at most 120
#   - ARCHITECTURE.md names only files and folders that exist
#   - unsafe code is in the files that ARCHITECTURE.md lists in its block ```unsafe (first word of a line: the path),
#     and in each of them
set -euo pipefail
shopt -s extglob
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly LINES_OF_SOURCE=600
readonly LINES_OF_README=120

breaches=0
breach() { echo "check-sources: $*" >&2; breaches=$((breaches + 1)); }

check_length() { # file, limit
    local lines
    lines=$(wc -l <"$1")
    ((lines <= $2)) || breach "$1 has $lines lines, $2 are allowed"
}

check_lengths() {
    local file
    while read -r file; do
        check_length "$file" $LINES_OF_SOURCE
    done < <(git ls-files -- '*.rs' '*.S' '*.ld' '*.sh' '*.py' '*.toml' .ci/run)
    check_length README.md $LINES_OF_README
}

# A name is what stands between backticks and ends like a file or a folder. It may be short for the end of a path
# (`worker.rs`), and <driver> stands for any one name.
readonly NAME='`\K[A-Za-z0-9_.<>/-]+(/|\.(rs|S|ld|sh|toml|md))(?=`)'
check_architecture_names() {
    local name pattern
    while read -r name; do
        pattern=${name//<*([a-z])>/*}
        [[ $pattern != */ ]] || pattern+='*'
        [[ $(git ls-files -- "$pattern" "*/$pattern") ]] || breach "ARCHITECTURE.md names $name, which does not exist"
    done < <(grep --only-matching --perl-regexp "$NAME" ARCHITECTURE.md | sort --unique)
}

check_unsafe_files() {
    local file
    while read -r file; do
        breach "$file has unsafe code, but ARCHITECTURE.md does not list it"
    done < <(comm -23 <(files_with_unsafe_code) <(listed_unsafe_files))
    while read -r file; do
        breach "ARCHITECTURE.md lists $file, which has no unsafe code"
    done < <(comm -13 <(files_with_unsafe_code) <(listed_unsafe_files))
}

# The word outside a comment counts, not the lint's `allow`: an `allow` in a parent covers the modules below it.
files_with_unsafe_code() {
    git grep --perl-regexp --files-with-matches '^(?!\s*//)((?!//).)*\bunsafe\b' -- '*.rs' | sort
}

listed_unsafe_files() {
    sed -n '/^```unsafe$/,/^```$/{/^```/!s/[[:space:]].*//p}' ARCHITECTURE.md | sed '/^$/d' | sort
}

for document in README.md ARCHITECTURE.md LICENSE-MIT LICENSE-APACHE; do
    [[ -f $document ]] || { breach "$document is missing"; exit 1; }
done
check_lengths
check_architecture_names
check_unsafe_files
((breaches == 0)) || exit 1
echo "check-sources: all rules hold"
