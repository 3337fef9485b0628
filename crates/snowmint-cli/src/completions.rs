//! `snowmint completions` and `snowmint man`: shell completions and man pages, generated from the flags.

use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::error::Failure;
use crate::output::Output;

const COMPLETIONS: &str = "\
Examples:
  snowmint completions bash > ~/.local/share/bash-completion/completions/snowmint
  snowmint completions zsh > ~/.zfunc/_snowmint
      With `fpath+=~/.zfunc` before `compinit` in ~/.zshrc.
  snowmint completions fish > ~/.config/fish/completions/snowmint.fish
  snowmint completions powershell >> $PROFILE
  source <(snowmint completions bash)
      For this shell only.";

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_long_help = COMPLETIONS, after_help = "See --help for where each shell looks for it.")]
pub(crate) struct CompletionArgs {
    /// Shell
    #[arg(value_name = "SHELL", value_enum)]
    shell: Shell,
}

const MAN: &str = "\
Examples:
  snowmint man | man -l -
      Reads the page of this command.
  snowmint man /usr/local/share/man/man1
      Writes a page for this command and for each subcommand, such as
      snowmint-serve.1 and snowmint-ns-add.1.";

/// Write man pages
#[derive(Debug, clap::Args)]
#[command(after_long_help = MAN, after_help = "See --help for examples.")]
pub(crate) struct ManArgs {
    /// Directory for the pages, created if it is missing; default: print the page of `snowmint`
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn print(args: &CompletionArgs, mut command: Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "snowmint", &mut script);
    let mut out = Output::new();
    out.bytes(&script)?;
    out.flush()
}

pub(crate) fn write_man(args: &ManArgs, mut command: Command) -> Result<(), Failure> {
    command.build();
    let mut out = Output::new();
    match &args.dir {
        None => out.bytes(&page(command)?)?,
        Some(dir) => {
            std::fs::create_dir_all(dir).map_err(|error| unwritten(dir, &error))?;
            let written = write_pages(command, "snowmint", dir)?;
            out.line(&format!("{written} pages written to {}", dir.display()))?;
        }
    }
    out.flush()
}

/// Writes the page of a command and of its subcommands. Returns the number of pages.
fn write_pages(command: Command, name: &str, dir: &Path) -> Result<usize, Failure> {
    let mut written = 1;
    for subcommand in command.get_subcommands().filter(|it| it.get_name() != "help") {
        let name = format!("{name}-{}", subcommand.get_name());
        written += write_pages(subcommand.clone(), &name, dir)?;
    }
    let path = dir.join(format!("{name}.1"));
    let page = page(command)?;
    std::fs::write(&path, page).map_err(|error| unwritten(&path, &error))?;
    Ok(written)
}

fn page(command: Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    Man::new(command).manual("Snowmint").render(&mut page).map_err(|error| Failure::output(&error))?;
    Ok(page)
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    Failure::runtime(format!("cannot write {}: {error}", path.display()))
}
