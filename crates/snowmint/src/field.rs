//! The fields of an id, one type each, so that the compiler rejects a worker where a sequence is expected.
//! Their widths are part of the layout.

use core::fmt;

/// A field of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Field {
    /// Ticks since the layout's epoch.
    Timestamp,
    /// The upper part of the generator's name; optional.
    Datacenter,
    /// The generator that made the id.
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

    /// Returns the field's name in the text form of a layout: `time`, `datacenter`, `worker`, `generation`,
    /// `sequence`.
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
    /// The sequence field: the number of earlier ids in the same tick, if sequences start at 0.
    Sequence(u32)
}

/// The fields of one id. A field that the layout does not have is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Parts {
    /// Ticks since the epoch.
    pub timestamp: Timestamp,
    /// The upper part of the generator's name.
    pub datacenter: DatacenterId,
    /// The generator that made the id.
    pub worker: WorkerId,
    /// Changes when the clock goes back, if the layout has this field.
    pub generation: Generation,
    /// Position inside the tick.
    pub sequence: Sequence,
}

impl Parts {
    /// Returns the value of one field as a plain number.
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
