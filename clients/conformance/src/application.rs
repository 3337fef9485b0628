//! An application of a client beside real servers: two nodes with the namespaces `default` (snowflake) and `orders`
//! (segment), and a PostgreSQL server with two empty databases.

use std::error::Error;
use std::process::{Command, ExitStatus};

use snowmint_test_servers::snowmint::{Serve, Server};
use snowmint_test_servers::{Postgres, port};

/// The namespaces of both nodes, as a namespace file.
const NAMESPACES: &str =
    "[namespaces.default]\nscheme = \"snowflake\"\n\n[namespaces.orders]\nscheme = \"segment\"\n";

/// Runs a program with the addresses of the servers in its environment: `SNOWMINT_SERVERS` (URLs of both nodes, with a
/// comma), `SNOWMINT_SERVER` (one of them), `DATABASE_URL` and `DATABASE_URL_2` (`postgresql://…`).
///
/// # Errors
///
/// If the program does not start.
///
/// # Panics
///
/// If a server does not start.
pub fn run(command: &[String]) -> Result<ExitStatus, Box<dyn Error>> {
    let [program, args @ ..] = command else { return Err("expected a program".into()) };
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("namespaces.toml");
    std::fs::write(&file, NAMESPACES)?;
    let serve = || {
        Serve::new(folder.path()).ports(port::free(), port::free()).args(["--namespaces-file"]).args([&file])
    };
    let nodes: Vec<Server> = [serve(), serve()].iter().map(Serve::start).collect();
    let urls: Vec<_> = nodes.iter().map(|node| format!("http://{}", node.http())).collect();
    let postgres = Postgres::start();
    let databases = ["app", "app_2"].map(|name| {
        postgres.sql(&format!("CREATE DATABASE {name}"));
        format!("postgresql://postgres@127.0.0.1:{}/{name}", postgres.port())
    });
    let status = Command::new(program)
        .args(args)
        .env("SNOWMINT_SERVERS", urls.join(","))
        .env("SNOWMINT_SERVER", &urls[0])
        .env("DATABASE_URL", &databases[0])
        .env("DATABASE_URL_2", &databases[1])
        .status()?;
    Ok(status)
}
