//! Order on disk: what a start reads together is moved together, in the order of its first use, so that one
//! head reads it in one go. [`plan`] says what that would bring, [`apply()`] does it on a mounted ext4 or XFS
//! while the files are in use, and [`status()`] tells of the last time.
//!
//! It pays where a head moves, and where requests are what costs: a replay makes one of those for files that
//! lie one behind the other. Elsewhere nothing is moved.

mod apply;
mod compare;
mod evict;
mod keys;
mod moves;
pub mod moving;
mod one_file_system;
mod order;
mod own_profile;
mod pace;
mod placed_files;
mod predict;
mod results;
mod room;
mod settle;
mod show;
mod survey;
#[cfg(test)]
mod testing;
pub mod waiting;
mod work;

pub use apply::apply;
pub use keys::{apply_to, orders};
pub use one_file_system::Bounds;
pub use order::{FreeRoom, Item, NO_ROOM, Order, plan};
pub use predict::Prediction;
pub use results::{LayoutResult, State, status};
pub use show::{failed_text, items_text, kept_text, order_text, underway};
