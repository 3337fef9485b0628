//! `snowmint token`: makes, lists, replaces and revokes the tokens in a file of `snowmint serve`.

use std::fs;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use snowmint::utc::{self, Utc};
use snowmint::{Clock as _, WallClock};
use snowmint_server::access::file::{
    EditError, PreviousSecret, TokenRows, amount, existing, parse, parse_per_day, parse_rate,
    with_changed_row, with_row, without_row,
};
use snowmint_server::access::secret::{Secret, TokenName};
use snowmint_server::access::{Pattern, Quotas, Right, TokenRow};

use crate::error::{Failure, report};
use crate::flag_values::long_time;
use crate::output::{self, Output};
use crate::shared_file::{self, Readers, unreadable};

const EXAMPLES: &str = "\
Examples:
  snowmint token create orders --namespaces 'orders,users-*' --file tokens.toml
      Prints the token once. The file gets its SHA-256 only.
  snowmint serve --tokens-file tokens.toml
      Every client now needs a token. Then:
      curl -H \"Authorization: Bearer $TOKEN\" localhost:8080/v1/ids/orders
      redis-cli -p 6380 --pass \"$TOKEN\" ID.NEXT orders
  snowmint token create load --namespaces '*' --rate 50k/s --per-day 10M \\
      --expires 90d --file tokens.toml
      Quotas count ids, separately on each node.
  snowmint token create ops --namespaces '*' --rights admin --file tokens.toml
      For the admin API.
  snowmint token rotate orders --overlap 24h --file tokens.toml
      A new secret; the old one stays valid for a day.
  snowmint token revoke orders --file tokens.toml

Rights. mint: take ids. inspect: decode ids, list namespaces. admin: change
namespaces and the node. A token has its rights on the namespaces that it names;
* stands for any text.

A running server notices a change of the file within five seconds, and at SIGHUP
at once. Copy the file to each node.

JSON: name, file, namespaces, rights, rate, per_day and expires; with create and
rotate also token, the secret. revoke: name, file and revoked.";

/// Make, list, replace or revoke the tokens of clients
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.", arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: TokenAction,
}

#[derive(Debug, clap::Subcommand)]
enum TokenAction {
    /// Make a token, and print it once
    #[command(aliases = ["add", "new"], after_help = "Example: snowmint token create orders --namespaces orders --file tokens.toml")]
    Create(CreateArgs),
    /// List the tokens of a file
    #[command(alias = "ls", after_help = "Example: snowmint token list --file tokens.toml --json")]
    List {
        #[command(flatten)]
        file: FileArgs,
    },
    /// Remove a token: its clients are rejected
    #[command(aliases = ["rm", "remove", "delete", "drop"], after_help = "Example: snowmint token revoke orders --file tokens.toml")]
    Revoke {
        /// Name of the token
        name: TokenName,
        #[command(flatten)]
        file: FileArgs,
    },
    /// Replace the secret of a token, and print the new one once
    #[command(after_help = "Example: snowmint token rotate orders --overlap 24h --file tokens.toml")]
    Rotate {
        /// Name of the token
        name: TokenName,
        /// Time for which the old secret stays valid
        #[arg(long, value_name = "TIME", default_value = "1h", value_parser = overlap)]
        overlap: Duration,
        #[command(flatten)]
        file: FileArgs,
    },
}

#[derive(Debug, clap::Args)]
struct CreateArgs {
    /// Name of the token, 1 to 64 letters, digits or `-`: it appears in the token, in metrics and in errors
    name: TokenName,
    /// Namespaces that the token may use, separated by commas; * stands for any text
    #[arg(long, value_name = "PATTERN,...", value_delimiter = ',', required = true)]
    namespaces: Vec<Pattern>,
    /// Rights: mint, inspect, admin
    #[arg(long, value_name = "RIGHT,...", value_delimiter = ',', default_value = "mint,inspect")]
    rights: Vec<Right>,
    /// Quota of ids a second on each node, such as 50k/s. As many can be taken at once
    #[arg(long, value_name = "N/s", value_parser = parse_rate)]
    rate: Option<NonZeroU64>,
    /// Quota of ids a UTC day on each node, such as 10M
    #[arg(long, value_name = "N", value_parser = parse_per_day)]
    per_day: Option<NonZeroU64>,
    /// Time after which the token is invalid, such as 90d, or an instant, such as 2030-01-01; default: never
    #[arg(long, value_name = "TIME", value_parser = expiry)]
    expires: Option<Expiry>,
    #[command(flatten)]
    file: FileArgs,
}

#[derive(Debug, clap::Args)]
struct FileArgs {
    /// File of tokens (TOML), as `snowmint serve --tokens-file` takes it
    #[arg(long, help_heading = "File", value_name = "FILE", env = "SNOWMINT_TOKENS_FILE")]
    file: PathBuf,
    /// Print one JSON object per line
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// When a token expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expiry {
    In(Duration),
    At(u64),
}

/// Parses `90d`, any other time, or an instant.
fn expiry(text: &str) -> Result<Expiry, String> {
    if let Some(time) = long_time(text).filter(|time| !time.is_zero()) {
        return Ok(Expiry::In(time));
    }
    let is_date = text.contains('-');
    let instant = utc::parse(text).ok().filter(|_| is_date);
    instant
        .map(Expiry::At)
        .ok_or_else(|| "expected a time such as 90d or 12h, or an instant such as 2030-01-01".to_owned())
}

fn overlap(text: &str) -> Result<Duration, String> {
    let most = Duration::from_hours(24 * 365);
    long_time(text)
        .filter(|time| *time <= most)
        .ok_or_else(|| "expected a time from 0s to 365d, such as 1h".to_owned())
}

/// A token as JSON.
#[derive(Serialize)]
struct TokenJson<'a> {
    name: &'a str,
    file: String,
    namespaces: Vec<&'a str>,
    rights: Vec<&'static str>,
    rate: Option<u64>,
    per_day: Option<u64>,
    expires: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let now_unix_ms = WallClock.unix_ms();
    match &args.action {
        TokenAction::Create(args) => create(args, now_unix_ms),
        TokenAction::List { file } => list(file, now_unix_ms),
        TokenAction::Revoke { name, file } => {
            change(&file.file, |text| without_row(text, name).map(|text| (text, ())))?;
            let mut out = Output::new();
            if file.json {
                let file = file.file.display().to_string();
                out.json(&serde_json::json!({"name": name.as_str(), "file": file, "revoked": true}))?;
            } else {
                out.line(&format!("token `{name}` revoked in {}", file.file.display()))?;
            }
            out.flush()
        }
        TokenAction::Rotate { name, overlap, file } => rotate(name, *overlap, file, now_unix_ms),
    }
}

fn create(args: &CreateArgs, now_unix_ms: u64) -> Result<(), Failure> {
    let expires_unix_ms = args.expires.map(|expires| match expires {
        Expiry::In(time) => now_unix_ms
            .saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
            .min(utc::MAX_UNIX_MS),
        Expiry::At(unix_ms) => unix_ms,
    });
    if let Some(unix_ms) = expires_unix_ms.filter(|unix_ms| *unix_ms <= now_unix_ms) {
        return Err(Failure::flag(
            "--expires",
            format!("{} is in the past: choose a later instant", Utc(unix_ms)),
        ));
    }
    let secret = generate(&args.name)?;
    let row = TokenRow {
        digest: secret.digest(),
        previous: None,
        namespaces: args.namespaces.clone(),
        rights: args.rights.iter().copied().collect(),
        quotas: Quotas { rate: args.rate, per_day: args.per_day },
        expires_unix_ms,
    };
    change(&args.file.file, |text| with_row(text, &args.name, &row).map(|text| (text, ())))?;
    hand_out(&args.name, &row, &secret, &args.file, "")
}

fn rotate(name: &TokenName, overlap: Duration, file: &FileArgs, now_unix_ms: u64) -> Result<(), Failure> {
    let secret = generate(name)?;
    let until_unix_ms = now_unix_ms + u64::try_from(overlap.as_millis()).unwrap_or_default();
    let row = change(&file.file, |text| {
        let rows = parse(text).map_err(EditError::Invalid)?;
        let old = existing(&rows, name)?;
        let previous = PreviousSecret { digest: old.digest, until_unix_ms };
        let previous = Some(previous).filter(|_| !overlap.is_zero());
        let row = TokenRow { digest: secret.digest(), previous, ..old.clone() };
        with_changed_row(text, name, &row).map(|text| (text, row))
    })?;
    let old = if overlap.is_zero() {
        "; the old secret is invalid".to_owned()
    } else {
        format!("; the old secret is valid until {}", Utc(until_unix_ms))
    };
    hand_out(name, &row, &secret, file, &old)
}

fn generate(name: &TokenName) -> Result<Secret, Failure> {
    Secret::generate(name)
        .map_err(|error| Failure::runtime(format!("no random numbers from the system: {error}")))
}

/// Prints a token: only the token goes to standard output, so that a script can read it.
fn hand_out(
    name: &TokenName,
    row: &TokenRow,
    secret: &Secret,
    file: &FileArgs,
    more: &str,
) -> Result<(), Failure> {
    let mut out = Output::new();
    if file.json {
        out.json(&shown(name, row, &file.file, Some(secret.as_str())))?;
    } else {
        out.line(secret.as_str())?;
    }
    out.flush()?;
    if !file.json {
        let expires =
            row.expires_unix_ms.map_or_else(|| "never".to_owned(), |unix_ms| Utc(unix_ms).to_string());
        let quotas = quotas(row).into_iter().map(|quota| format!(", quota {quota}"));
        let quotas = quotas.collect::<Vec<_>>().concat();
        let what = format!(
            "token `{name}` written to {}: namespaces {}, rights {}{quotas}, expires {expires}{more}; keep the token now, it is not shown \
             again",
            file.file.display(),
            namespaces(row),
            rights(row),
        );
        report("done", &what);
    }
    Ok(())
}

fn list(file: &FileArgs, now_unix_ms: u64) -> Result<(), Failure> {
    let text = fs::read_to_string(&file.file).map_err(|error| unreadable(&file.file, &error))?;
    let rows: TokenRows = parse(&text).map_err(|why| invalid(&file.file, &why))?;
    let mut out = Output::new();
    for (name, row) in &rows {
        if file.json {
            out.json(&shown(name, row, &file.file, None))?;
            continue;
        }
        let quotas = quotas(row).join(" ");
        let expires = match row.expires_unix_ms {
            None => String::new(),
            Some(unix_ms) if unix_ms <= now_unix_ms => {
                out.paint.alarm(&format!("expired {}", output::age(unix_ms, now_unix_ms)))
            }
            Some(unix_ms) => format!("expires {}", output::age(unix_ms, now_unix_ms)),
        };
        let line = format!(
            "{}  {}  {}  {quotas}  {expires}",
            out.paint.bold(name.as_str()),
            namespaces(row),
            rights(row)
        );
        out.line(line.trim_end())?;
    }
    out.flush()
}

/// Returns the quotas of a token as text: `50k/s` and `10M/day`.
fn quotas(row: &TokenRow) -> Vec<String> {
    let rate = row.quotas.rate.map(|rate| format!("{}/s", amount(rate.get())));
    let per_day = row.quotas.per_day.map(|per_day| format!("{}/day", amount(per_day.get())));
    rate.into_iter().chain(per_day).collect()
}

fn namespaces(row: &TokenRow) -> String {
    row.namespaces.iter().map(Pattern::as_str).collect::<Vec<_>>().join(",")
}

fn rights(row: &TokenRow) -> String {
    row.rights.iter().map(Right::name).collect::<Vec<_>>().join(",")
}

fn shown<'a>(name: &'a TokenName, row: &'a TokenRow, file: &Path, token: Option<&'a str>) -> TokenJson<'a> {
    TokenJson {
        name: name.as_str(),
        file: file.display().to_string(),
        namespaces: row.namespaces.iter().map(Pattern::as_str).collect(),
        rights: row.rights.iter().map(Right::name).collect(),
        rate: row.quotas.rate.map(NonZeroU64::get),
        per_day: row.quotas.per_day.map(NonZeroU64::get),
        expires: row.expires_unix_ms.map(|unix_ms| Utc(unix_ms).to_string()),
        token,
    }
}

/// Changes the file of tokens, without losing what another command changes at the same time.
fn change<T>(path: &Path, edit: impl FnOnce(&str) -> Result<(String, T), EditError>) -> Result<T, Failure> {
    // The file has digests only, and nodes of other users read it.
    shared_file::change(path, Readers::Umask, |text| {
        edit(text).map_err(|error| match error {
            EditError::Invalid(why) => invalid(path, &why),
            error => Failure::usage(error),
        })
    })
}

fn invalid(path: &Path, why: &str) -> Failure {
    Failure::usage(format!("{}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiries_are_times_or_instants() {
        let day = Duration::from_hours(24);
        assert_eq!(expiry("90d"), Ok(Expiry::In(day * 90)));
        assert_eq!(expiry("12h"), Ok(Expiry::In(day / 2)));
        assert_eq!(expiry("2030-01-01"), Ok(Expiry::At(1_893_456_000_000)));
        assert_eq!(expiry("2030-01-01T00:00:00Z"), Ok(Expiry::At(1_893_456_000_000)));
        for bad in ["", "d", "0d", "0s", "-1d", "1.5d", "soon", "90", "1893456000000"] {
            assert!(expiry(bad).is_err(), "{bad}");
        }
        assert_eq!(overlap("0s"), Ok(Duration::ZERO));
        assert!(overlap("366d").is_err() && overlap("x").is_err());
    }

    /// Goal: two concurrent commands lose nothing. Method: eight threads create tokens in one file.
    #[test]
    fn concurrent_changes_are_all_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        std::thread::scope(|scope| {
            for number in 0..8 {
                let path = &path;
                scope.spawn(move || {
                    let name = TokenName::new(&format!("t{number}")).unwrap();
                    let row = TokenRow {
                        digest: generate(&name).unwrap().digest(),
                        previous: None,
                        namespaces: vec!["*".parse().unwrap()],
                        rights: [Right::Mint].into_iter().collect(),
                        quotas: Quotas::default(),
                        expires_unix_ms: None,
                    };
                    change(path, |text| with_row(text, &name, &row).map(|text| (text, ()))).unwrap();
                });
            }
        });
        let rows = parse(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(rows.len(), 8);
    }
}
