//! headstart-outcome(5).

use super::values::Values;
use super::{Container, FormatError, Kind, Writer, stage_name};
use crate::limits::{self, bounded};
use crate::{Key, Outcome};

/// The values that older files end before, of a byte each where they say nothing: five options and truths,
/// eight numbers, an option.
const ADDED_LATER: usize = 14;

impl Outcome {
    /// The outcome as a file; of a reason longer than [`limits::REASON`] the beginning is written.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        if let Some(reason) = self.not_learned.as_ref().filter(|r| r.len() > limits::REASON) {
            let end = (0..=limits::REASON).rev().find(|at| reason.is_char_boundary(*at));
            let shorter = Outcome {
                not_learned: Some(reason[..end.unwrap_or(0)].into()),
                ..self.clone()
            };
            return shorter.to_bytes();
        }
        self.check().map_err(|what| FormatError::TooLarge {
            kind: Kind::Outcome.name(),
            what,
        })?;
        let mut file = Writer::new(Kind::Outcome);
        file.value(b"OUTC", self, limits::OUTCOME_FILE)?;
        file.finish()
    }

    /// Reads an outcome.
    pub fn from_bytes(bytes: &[u8]) -> Result<Outcome, FormatError> {
        let file = Container::new(Kind::Outcome, bytes)?;
        // A list of stages takes ten times the bytes that it is read from at most, and the section has few.
        let mut section = file.section(b"OUTC", limits::OUTCOME_FILE)?;
        // Older files end before some of the last values: options that are none, what is not so, numbers that
        // are 0. Bytes beyond them are ignored.
        section.extend([0; ADDED_LATER]);
        let read = Values::new(&section).one();
        let outcome: Outcome = read.map_err(|what| file.damaged(format!("section OUTC: {what}")))?;
        outcome.check().map_err(|what| file.damaged(what))?;
        Ok(outcome)
    }

    /// Whether every limit is kept.
    fn check(&self) -> Result<(), String> {
        Key::new(self.key.as_str()).map_err(|e| e.to_string())?;
        bounded("stages", self.stages.len(), limits::STAGES)?;
        self.stages
            .iter()
            .try_for_each(|stage| stage_name(&stage.stage))?;
        let reason = self.not_learned.as_ref().map_or(0, String::len);
        bounded("bytes of a reason", reason, limits::REASON)
    }
}
