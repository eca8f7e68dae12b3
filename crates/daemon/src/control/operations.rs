//! The operations that were begun by way of the socket, so that they can be ended by their names.

/// So many are known by name; the oldest go first. What began them can still end them by their numbers.
const MOST: usize = 256;

/// Which operations were begun, oldest first.
#[derive(Default)]
pub struct Operations(Vec<Operation>);

struct Operation {
    uid: u32,
    name: String,
    id: u64,
}

impl Operations {
    pub fn add(&mut self, uid: u32, name: &str, id: u64) {
        if self.0.len() >= MOST {
            self.0.remove(0);
        }
        let name = name.to_string();
        self.0.push(Operation { uid, name, id });
    }

    /// The last one that a user began by this name.
    pub fn last(&self, uid: u32, name: &str) -> Option<u64> {
        let operation = self
            .0
            .iter()
            .rev()
            .find(|begun| begun.uid == uid && begun.name == name);
        operation.map(|begun| begun.id)
    }

    pub fn remove(&mut self, id: u64) {
        self.0.retain(|begun| begun.id != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_a_name_is_meant_and_only_ones_own() {
        let mut operations = Operations::default();
        operations.add(1000, "open", 1);
        operations.add(1000, "open", 2);
        operations.add(1001, "open", 3);
        assert_eq!(operations.last(1000, "open"), Some(2));
        operations.remove(2);
        assert_eq!(operations.last(1000, "open"), Some(1));
        assert_eq!(operations.last(1000, "other"), None);
        assert_eq!(operations.last(0, "open"), None);
        (10..2000).for_each(|id| operations.add(1000, "many", id));
        assert!(operations.0.len() <= MOST && operations.last(1000, "open").is_none());
    }
}
