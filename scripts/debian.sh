# shellcheck shell=bash
# Makes things of Debian's packages without installing any of them: for the scripts beside, which source this.
#
# Packages come from Debian's archive (also on Ubuntu), checked with Debian's keys, and are unpacked into
# ${SLUICE_CACHE:-~/.cache/sluice}.

readonly CACHE=${SLUICE_CACHE:-$HOME/.cache/sluice}
readonly RELEASE=trixie
readonly KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
# Debian's libraries, and the loader that finds them wherever they lie.
readonly LIBRARIES=usr/lib/x86_64-linux-gnu
readonly LOADER=usr/lib64/ld-linux-x86-64.so.2

trap 'rm -rf "${scratch:-}"' EXIT

say() { echo "setup: $*"; }
fail() { echo "setup: error: $*" >&2; exit 1; }

# Makes $CACHE/$1 by the function make_$1, unless it is there as these scripts make it. It appears whole or not at all.
make_once() {
    local recipe
    recipe=$(cat "$0" "${BASH_SOURCE[0]}" | sha256sum)
    [[ $(cat "$CACHE/$1/recipe" 2>/dev/null) != "$recipe" ]] || return 0
    say "making $2 in $CACHE/$1 from Debian's packages"
    mkdir -p "$CACHE"
    scratch=$(mktemp -d "$CACHE/making-$1.XXXXXX")
    mkdir "$scratch/result"
    "make_$1"
    echo "$recipe" >"$scratch/result/recipe"
    rm -rf "${CACHE:?}/$1"
    mv "$scratch/result" "$CACHE/$1"
    rm -rf "$scratch"
}

# ------------------------------------------------------------------------------------------------------ a Linux guest

# The least that Linux starts from, in $2: busybox, and the init that comes on standard input.
make_tree() {
    local root=$1 tree=$2
    mkdir -p "$tree"/{bin,dev,etc,proc,run,sys,tmp,var/run,usr/bin,usr/sbin,usr/lib64,"$LIBRARIES"}
    ln -s usr/lib usr/lib64 "$tree"
    cp "$root/usr/bin/busybox" "$tree/bin/busybox"
    cp "$root/$LOADER" "$tree/$LOADER"
    cat >"$tree/init"
    chmod +x "$tree/init"
}

# The modules by name with those that they need, and the index that modprobe finds them by.
add_modules() {
    local root=$1 tree=$2 version
    version=$(ls "$root/usr/lib/modules")
    mkdir -p "$tree/usr/lib/modules/$version"
    add_modules_to "$root" "$tree/usr/lib/modules/$version" "${@:3}"
    "$tree/bin/busybox" depmod -b "$tree" "$version"
}

add_modules_to() {
    local root=$1 folder=$2 name file
    for name in "${@:3}"; do
        [[ ! -e $folder/$name.ko ]] || continue
        file=$(find "$root/usr/lib/modules" -name "${name//_/[_-]}.ko.xz")
        [[ -f $file ]] || fail "the kernel has no module $name"
        "$root/usr/bin/busybox" xz -dc "$file" >"$folder/$name.ko"
        # shellcheck disable=SC2046 # one word a module
        add_modules_to "$root" "$folder" $(needs_of "$folder/$name.ko")
    done
}

# The modules that a module needs, as its section .modinfo tells.
needs_of() {
    tr '\0' '\n' <"$1" | sed -n 's/^depends=//p' | tr ',' ' '
}

# The programs, and the libraries that they link to.
add_programs() {
    local root=$1 tree=$2 file
    for file in "${@:3}"; do
        mkdir -p "$tree/$(dirname "$file")"
        cp -L "$root/$file" "$tree/$file"
        "$root/$LOADER" --library-path "$root/$LIBRARIES" --list "$root/$file" | sed -n 's/.* => \([^ ]*\) .*/\1/p'
    done | sort -u | xargs cp -L --target-directory "$tree/$LIBRARIES"
}

# An archive as Linux unpacks it at its start; uncompressed, because an emulated processor takes long to decompress.
pack() {
    (cd "$1" && find . | "$1/bin/busybox" cpio -o -H newc 2>/dev/null)
}

# ------------------------------------------------------------------------------------------------- Debian's packages

# Unpacks packages of Debian with all that they depend on into $1; the other words are for `apt-get install`.
unpack() {
    local into=$1 apt=$scratch/apt package
    shift
    mkdir -p "$into" "$apt"/{lists/partial,archives/partial}
    command -v apt-get >/dev/null || fail "there is no apt-get here, and only with it can Debian's packages be fetched"
    [[ -e $KEYRING ]] || fail "$KEYRING is missing (package debian-archive-keyring)"
    # As if nothing were installed, so that every library comes along.
    : >"$apt/status"
    for suite in $RELEASE $RELEASE-updates $RELEASE-backports; do
        echo "deb [arch=amd64 signed-by=$KEYRING] $(mirror) $suite main"
    done >"$apt/sources.list"

    say "fetching $*"
    private_apt update
    private_apt install --yes --no-install-recommends --download-only "$@"
    for package in "$apt"/archives/*.deb; do
        dpkg-deb --extract "$package" "$into"
    done
    rm -r "$apt/archives"
}

# apt-get with lists, a cache and a state of its own.
private_apt() {
    local apt=$scratch/apt
    local -a options=(
        --quiet=2 -o Acquire::Retries=3 -o Acquire::Languages=none -o APT::Architecture=amd64 -o APT::Sandbox::User=
        -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=- -o Dir::Etc::Preferences=- -o Dir::Etc::PreferencesParts=-
        -o Dir::State="$apt" -o Dir::State::Lists="$apt/lists" -o Dir::State::Status="$apt/status"
        -o Dir::Cache="$apt" -o Dir::Cache::Archives="$apt/archives" -o Debug::NoLocking=1
    )
    apt-get "${options[@]}" "$@" >"$scratch/apt.log" 2>&1 || { cat "$scratch/apt.log" >&2; fail "apt-get $* failed"; }
}

# The mirror of Debian that this machine uses; elsewhere the one that everybody can reach.
mirror() {
    local own
    own=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' 2>/dev/null | head -n 1) || true
    echo "${own:-http://deb.debian.org/debian}"
}
