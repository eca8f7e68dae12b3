//! One start, whoever asks for it: [`Start`] is what is decided, done and was found for it, [`decide`] says
//! what is done, and [`finish`] reviews, learns, plans and keeps. The adapters (`run`, `boot`, `daemon`)
//! bring the rest.

mod arguments;
pub mod bypass;
pub mod config;
pub mod deadline;
pub mod decide;
pub mod finish;
pub mod keys;
pub mod machine;
mod next_start;
pub mod notes;
pub mod progress;
mod remote_cost;
mod remote_files;
mod replan;
mod replan_after_move;
mod secret_names;
pub mod shutdown_unit;
mod start;
mod state;
mod unmounted_files;
mod warm_start;

pub use arguments::Arguments;
pub use next_start::{machine_of, plan_of, plan_of_state, waits_on_one_head};
pub use notes::{Notes, complain};
pub use replan_after_move::plan_again;
pub use secret_names::{are_some_unknown, forget_secret_names};
pub use start::{Over, Reads, Replayed, Start, StartRequest};
pub use state::{now_unix_ns, store};
pub use warm_start::OWN_NS;
