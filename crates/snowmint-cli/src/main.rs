//! The program `snowmint`. Its code is in the library of this package.

use std::process::ExitCode;

fn main() -> ExitCode {
    snowmint_cli::main()
}
