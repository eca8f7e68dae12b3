//! headstart-outcome(5).

use super::{Container, FormatError, Kind, Writer};
use crate::{Key, Outcome};

impl Outcome {
    /// The outcome as a file.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        let mut file = Writer::new(Kind::Outcome);
        file.value(b"OUTC", self)?;
        file.finish()
    }

    /// Reads an outcome.
    pub fn from_bytes(bytes: &[u8]) -> Result<Outcome, FormatError> {
        let file = Container::new(Kind::Outcome, bytes)?;
        let outcome: Outcome = file.value(b"OUTC")?;
        Key::new(outcome.key.as_str()).map_err(|e| file.damaged(e.to_string()))?;
        Ok(outcome)
    }
}
