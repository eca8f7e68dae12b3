//! Who is a person, by the ranges of user ids.

use std::ops::RangeInclusive;

/// The first user id of people (`UID_MIN` of login.defs(5)); those below are of the system and its services.
const FIRST_OF_PEOPLE: u32 = 1000;

/// Beyond that, those that belong to the system: of greeters, of services with `DynamicUser=`, and nobody's
/// (systemd, UIDS-GIDS.md).
const OF_SERVICES: RangeInclusive<u32> = 60578..=65534;

/// Whether a user is a person, and not the system (decision 9).
pub fn is_ordinary(uid: u32) -> bool {
    uid >= FIRST_OF_PEOPLE && !OF_SERVICES.contains(&uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_no_people_and_users_of_containers_are() {
        for (uid, expected) in [
            (0, false),
            (110, false),
            (1000, true),
            (60_001, true),
            (61_184, false),
            (65_519, false),
            (65_534, false),
            (100_000, true),
        ] {
            assert_eq!(is_ordinary(uid), expected, "{uid}");
        }
    }
}
