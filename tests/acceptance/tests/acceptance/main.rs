//! Whole programs and machines that boot, on private cold mounts. One program, so that it is linked once.

mod boot;
mod chart;
mod daemon;
mod golden;
mod guard;
mod guide;
mod hostile;
mod hydrate;
mod kill;
mod layout;
mod learning;
mod odd_boots;
mod own;
mod reads;
mod recall;
mod size;
mod upgrade;
