//! Standard output, buffered, and whether it takes colours: only a terminal does, and only without `NO_COLOR`.

use std::io::{self, BufWriter, StdoutLock, Write};

use snowmint::field::Field;

use crate::exit::Failure;

/// Room that is written at once.
const ROOM: usize = 64 * 1024;

/// Standard output of a command.
pub(crate) struct Output {
    out: BufWriter<StdoutLock<'static>>,
    /// How to colour what goes there.
    pub(crate) paint: Paint,
}

impl Output {
    pub(crate) fn new() -> Self {
        Self {
            out: BufWriter::with_capacity(ROOM, io::stdout().lock()),
            paint: Paint { on: wants_colour(&io::stdout()) },
        }
    }

    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())?;
        self.bytes(b"\n")
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes).map_err(|error| Failure::output(&error))
    }

    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(|error| Failure::output(&error))
    }
}

/// Whether a stream is a terminal whose user has not asked for plain text.
pub(crate) fn wants_colour(stream: &impl io::IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Colours text, or leaves it.
#[derive(Clone, Copy)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// The colour of a field: the same in its bits, its name and its value.
    pub(crate) fn field(self, field: Field, text: &str) -> String {
        self.with(
            match field {
                Field::Timestamp => "36",
                Field::Datacenter => "35",
                Field::Worker => "32",
                Field::Generation => "34",
                Field::Sequence => "33",
            },
            text,
        )
    }

    pub(crate) fn faint(self, text: &str) -> String {
        self.with("2", text)
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    pub(crate) fn alarm(self, text: &str) -> String {
        self.with("31", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    #[cfg(test)]
    pub(crate) const fn forced(on: bool) -> Self {
        Self { on }
    }
}
