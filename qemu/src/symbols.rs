//! Names for the raw addresses of a crash report.

use std::fmt;
use std::path::Path;

use addr2line::Loader;
use anyhow::{Result, anyhow};

/// The shortest run of hexadecimal digits that is taken for an address: the image is loaded at 0x1000000.
const SHORTEST_ADDRESS: usize = 7;

/// The symbols of one built image.
pub struct Symbols {
    loader: Loader,
}

impl Symbols {
    /// Reads the symbol file that the build has put beside the image.
    ///
    /// # Errors
    /// When the file is missing or is no ELF.
    pub fn load(path: &Path) -> Result<Self> {
        let loader = Loader::new(path)
            .map_err(|error| anyhow!("cannot read symbols of {}: {error}", path.display()))?;
        Ok(Self { loader })
    }

    /// What lies at this address: function, file and line; `None` outside of the image's code.
    pub fn lookup(&self, address: u64) -> Option<String> {
        let name = addr2line::demangle_auto(self.loader.find_symbol(address)?.into(), None);
        let location = self.loader.find_location(address).ok().flatten();
        let place =
            location.and_then(|location| Some(format!(" ({}:{})", shorten(location.file?), location.line?)));
        Some(format!("{name}{}", place.unwrap_or_default()))
    }

    /// The line with the name of what lies there behind every address of the image's code in it.
    pub fn annotate(&self, line: &str) -> String {
        let mut annotated = String::with_capacity(line.len());
        let mut rest = line;
        while let Some(start) = rest.find("0x") {
            let digits = rest[start + 2..].bytes().take_while(u8::is_ascii_hexdigit).count();
            let end = start + 2 + digits;
            annotated.push_str(&rest[..end]);
            let address =
                u64::from_str_radix(&rest[start + 2..end], 16).ok().filter(|_| digits >= SHORTEST_ADDRESS);
            if let Some(name) = address.and_then(|address| self.lookup(address)) {
                annotated.push_str(&format!(" <{name}>"));
            }
            rest = &rest[end..];
        }
        annotated + rest
    }
}

impl fmt::Debug for Symbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Symbols").finish_non_exhaustive()
    }
}

/// A source path from the crate's folder on: the line tables carry the builder's absolute paths.
fn shorten(file: &str) -> &str {
    let manifest = env!("CARGO_MANIFEST_DIR");
    let workspace = manifest.strip_suffix("qemu").unwrap_or(manifest);
    file.strip_prefix(workspace).unwrap_or(file)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[inline(never)]
    fn a_function_to_be_found(number: &mut u32) {
        *number += 7;
    }

    /// Where the running test has its first byte: its addresses are relative to that in its file.
    fn load_base() -> u64 {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let executable = std::env::current_exe().unwrap();
        let line = maps.lines().find(|line| line.ends_with(executable.to_str().unwrap())).unwrap();
        u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap()
    }

    #[test]
    fn addresses_of_code_get_names_and_all_else_stays() {
        let mut number = 0;
        a_function_to_be_found(&mut number);
        assert_eq!(number, 7);
        let symbols = Symbols::load(&std::env::current_exe().unwrap()).unwrap();
        let address = a_function_to_be_found as fn(&mut u32) as usize as u64 - load_base();
        let annotated = symbols.annotate(&format!("cr2=0x0 at {address:#018x}, then 0xffffffffffffffff"));
        let (before, after) = annotated.split_once(" <").expect("a name in brackets");
        assert_eq!(before, format!("cr2=0x0 at {address:#018x}"));
        assert!(after.contains("a_function_to_be_found (qemu/src/symbols.rs:"), "{annotated}");
        assert!(after.ends_with(">, then 0xffffffffffffffff"), "{annotated}");
    }

    #[test]
    fn a_line_without_addresses_is_left_alone() {
        let symbols = Symbols::load(&std::env::current_exe().unwrap()).unwrap();
        for line in ["", "0x", "port 0 mac=52:54", "0xzz 0x12", "über 0x1 €"] {
            assert_eq!(symbols.annotate(line), line);
        }
    }

    #[test]
    fn a_file_without_symbols_is_an_error() {
        assert!(Symbols::load(Path::new("/no/such/file")).unwrap_err().to_string().contains("/no/such/file"));
    }
}
