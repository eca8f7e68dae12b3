//! What users are told of starts is told once: whoever has a hundred of them does not read it a hundred
//! times.

use headstart_start::notes::complain;
use headstart_store::{Announced, Store};
use headstart_system::launch::run_apart;
use headstart_system::own_program::{Role, role};

/// By this variable services know that they are systemd's (systemd.exec(5)). Nobody reads what they say as
/// they say it.
const OF_SERVICES: &str = "INVOCATION_ID";

/// Whether a line is to be told: it was not yet, or nobody can tell and it is not a service that would say it
/// at each start.
pub fn is_news(store: Option<&Store>, line: &str) -> bool {
    match store.map_or(Announced::Unknown, |store| store.announce(line)) {
        Announced::Never => true,
        Announced::Before => false,
        Announced::Unknown => std::env::var_os(OF_SERVICES).is_none(),
    }
}

/// Prints a line, unless it was printed before. A process that a system call may kill has another process
/// check that.
pub fn complain_once(store: &dyn Fn() -> Option<Store>, line: &str) {
    let asked = || is_news(store().as_ref(), line);
    let is_news = match role() {
        Role::Careful => run_apart(asked).unwrap_or(false),
        _ => asked(),
    };
    if is_news {
        complain(line);
    }
}
