//! QEMU's monitor, as far as it is needed here (docs/interop/qmp-spec of QEMU): one command, one answer,
//! events passed over.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// A connection that has been greeted.
pub(super) struct Monitor {
    reader: BufReader<UnixStream>,
}

impl Monitor {
    /// Connects to the monitor's socket.
    pub(super) fn connect(socket: &Path) -> Result<Monitor> {
        let stream = UnixStream::connect(socket)
            .with_context(|| format!("connecting to QEMU at {}", socket.display()))?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let mut monitor = Monitor {
            reader: BufReader::new(stream),
        };
        monitor.receive().context("QEMU's greeting")?;
        monitor.execute("qmp_capabilities", &json!({}))?;
        Ok(monitor)
    }

    /// Executes one command and returns what it returns.
    pub(super) fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        let mut line = json!({ "execute": command, "arguments": arguments }).to_string();
        line.push('\n');
        self.reader
            .get_mut()
            .write_all(line.as_bytes())
            .with_context(|| format!("telling QEMU {command}"))?;
        loop {
            let answer = self
                .receive()
                .with_context(|| format!("QEMU's answer to {command}"))?;
            if let Some(value) = answer.get("return") {
                return Ok(value.clone());
            }
            if let Some(error) = answer.get("error") {
                bail!(
                    "QEMU on {command}: {}",
                    error["desc"].as_str().unwrap_or("refused")
                );
            }
        }
    }

    fn receive(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            bail!("it has ended");
        }
        Ok(serde_json::from_str(&line)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn events_between_command_and_answer_are_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"{\"QMP\":{}}\n").unwrap();
            let mut asked = Vec::new();
            for answer in [
                "{\"return\":{}}\n",
                "{\"event\":\"RESUME\"}\n{\"return\":7}\n",
                "{\"error\":{\"desc\":\"no such device\"}}\n",
            ] {
                let mut line = String::new();
                BufReader::new(stream.try_clone().unwrap())
                    .read_line(&mut line)
                    .unwrap();
                asked.push(line);
                stream.write_all(answer.as_bytes()).unwrap();
            }
            asked
        });
        let mut monitor = Monitor::connect(&path).unwrap();
        assert_eq!(monitor.execute("query", &json!({ "a": 1 })).unwrap(), json!(7));
        let error = monitor.execute("eject", &json!({})).unwrap_err().to_string();
        assert!(
            error.contains("eject") && error.contains("no such device"),
            "{error}"
        );
        let asked = server.join().unwrap();
        assert!(
            asked[0].contains("qmp_capabilities") && asked[1].contains("\"a\":1"),
            "{asked:?}"
        );
    }
}
