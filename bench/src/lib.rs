//! Snowmint compared with its peers: the subjects, the measurements and the output.
//!
//! Every table is measured in one run: its subjects take turns, round after round, so that a slow phase of
//! the machine affects all of them. A figure is the median of its rounds; a ratio is the median of the ratios
//! of the rounds. To add a subject, add one entry to the table of its group.

pub mod allocations;
pub mod echo;
pub mod groups;
pub mod http;
pub mod load;
pub mod ours;
pub mod peers;
pub mod server;
pub mod settings;
pub mod stats;
pub mod subject;
pub mod table;
pub mod targets;
pub mod timing;
pub mod wire;
