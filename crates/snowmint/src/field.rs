//! The fields of an id, one type each, so that a worker can never be passed where a sequence is meant.
//! None of them knows how wide it is: that is the layout's to say.

use core::fmt;

/// Which field of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Field {
    /// Ticks since the layout's epoch.
    Timestamp,
    /// The high part of who made the id; optional.
    Datacenter,
    /// Who made the id.
    Worker,
    /// Changes when the clock goes back; optional.
    Generation,
    /// Counts ids inside one tick.
    Sequence,
}

impl Field {
    /// Every field, in no particular bit order.
    pub const ALL: [Self; 5] =
        [Self::Timestamp, Self::Datacenter, Self::Worker, Self::Generation, Self::Sequence];

    /// The field's name in a layout's text form: `time`, `datacenter`, `worker`, `generation`, `sequence`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timestamp => "time",
            Self::Datacenter => "datacenter",
            Self::Worker => "worker",
            Self::Generation => "generation",
            Self::Sequence => "sequence",
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

macro_rules! field_value {
    ($(#[$doc:meta])* $name:ident($raw:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $raw);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

field_value! {
    /// Ticks since the layout's epoch; its unit is the layout's tick.
    Timestamp(u64)
}
field_value! {
    /// The datacenter field; 0 where a layout has none.
    DatacenterId(u32)
}
field_value! {
    /// The worker field, which names one generator; 0 where a layout has none.
    WorkerId(u32)
}
field_value! {
    /// The generation field; 0 where a layout has none.
    Generation(u32)
}
field_value! {
    /// The sequence field: how many ids came before this one in the same tick (when sequences start at 0).
    Sequence(u32)
}

/// The fields of one id, apart.
///
/// A field that the layout does not have is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Parts {
    /// Ticks since the epoch.
    pub timestamp: Timestamp,
    /// Who made it, high part.
    pub datacenter: DatacenterId,
    /// Who made it.
    pub worker: WorkerId,
    /// How often the clock went back, where the layout counts that.
    pub generation: Generation,
    /// Position inside the tick.
    pub sequence: Sequence,
}

impl Parts {
    /// The value of one field as a plain number.
    pub const fn value(&self, field: Field) -> u64 {
        match field {
            Field::Timestamp => self.timestamp.0,
            Field::Datacenter => self.datacenter.0 as u64,
            Field::Worker => self.worker.0 as u64,
            Field::Generation => self.generation.0 as u64,
            Field::Sequence => self.sequence.0 as u64,
        }
    }
}
