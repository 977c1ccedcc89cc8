//! Huge pages for those who can't do without.

use std::fs;

use anyhow::{Context, Result, ensure};

/// How many there are, and how many of them nobody has.
const COUNT: &str = "/proc/sys/vm/nr_hugepages";
const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";

/// As many huge pages of 2 MiB as were wished for. When this is dropped, the system has what it had before.
pub(super) struct HugePages {
    before: Option<usize>,
}

impl HugePages {
    /// Sees that `wanted` are free.
    ///
    /// # Errors
    /// When they are not and can't be had.
    pub(super) fn free(wanted: usize) -> Result<HugePages> {
        let (count, free) = (number(COUNT)?, number(FREE)?);
        if free >= wanted {
            return Ok(HugePages { before: None });
        }
        let needed = count + wanted - free;
        let advice = || format!("{wanted} free huge pages are needed: sysctl vm.nr_hugepages={needed}");
        fs::write(COUNT, needed.to_string()).with_context(advice)?;
        let pages = HugePages { before: Some(count) };
        ensure!(number(FREE)? >= wanted, "{}, and the system has no room for them", advice());
        Ok(pages)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Some(before) = self.before
            && let Err(error) = fs::write(COUNT, before.to_string())
        {
            log::warn!("vm.nr_hugepages is not what it was, {before}: {error}");
        }
    }
}

fn number(file: &str) -> Result<usize> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    text.trim().parse().with_context(|| format!("{file} has no number"))
}
