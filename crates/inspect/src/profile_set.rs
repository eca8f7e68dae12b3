//! Profiles that travel as text. Their JSON document is [`ProfileSet`] itself.

use crate::human::pages;
use crate::profile::page_counts;
use crate::table::{Table, section};
use headstart_model::ProfileSet;

/// The profiles for people.
pub fn text(set: &ProfileSet) -> String {
    let mut table = Table::new(&["key", ">starts", ">paths", ">prefetched"]);
    for profile in set.profiles() {
        table.row([
            profile.key.to_string(),
            profile.runs.to_string(),
            profile.entries.len().to_string(),
            pages(page_counts(profile).0, profile.page_size),
        ]);
    }
    let packages = set.packages.len();
    let head = format!(
        "profiles of {} keys, files of {packages} packages\n",
        set.profiles().len()
    );
    head + &section("Profiles", &table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::testing;

    #[test]
    fn each_key_has_a_row() {
        let mut set = ProfileSet::default();
        set.add(testing::profile(vec![testing::entry("/usr/bin/x")]))
            .unwrap();
        let text = text(&set);
        let key = set.profiles()[0].key.as_str();
        assert!(
            text.starts_with("profiles of 1 keys") && text.contains(key),
            "{text}"
        );
    }
}
