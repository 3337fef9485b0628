//! Throw-away certificates for servers on this machine, made by `openssl`: one authority, one server
//! certificate for `localhost` and 127.0.0.1, and one for a client. They are a day old, so that they are valid
//! for programs whose clock is set back.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::process::{find, run};
use crate::server::folder;
use crate::snowmint::FakeClock;

/// A certificate authority with a certificate for a server and one for a client.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
    paths: [PathBuf; 5],
}

impl Certificates {
    /// Makes new certificates that are valid for a month.
    ///
    /// # Panics
    ///
    /// If `openssl` is not installed.
    pub fn make() -> Self {
        let folder = folder("certificates");
        let path = folder.path();
        openssl(
            path,
            "req -x509 -nodes -keyout ca.key -out ca.pem -days 30 -subj /CN=snowmint-test-ca \
            -addext basicConstraints=critical,CA:TRUE -addext keyUsage=keyCertSign",
        );
        fs::write(
            path.join("extensions"),
            "subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n\
             basicConstraints=CA:FALSE\n",
        )
        .unwrap();
        // Common names that match user names.
        for (name, subject) in [("server", "/CN=localhost"), ("client", "/CN=snowmint")] {
            issue(path, name, subject);
        }
        let paths =
            ["ca.pem", "server.pem", "server.key", "client.pem", "client.key"].map(|name| path.join(name));
        Self { folder, paths }
    }

    /// Issues one more certificate, and returns its path and that of its key.
    pub(crate) fn issue(&self, name: &str, subject: &str) -> [PathBuf; 2] {
        issue(self.folder(), name, subject);
        ["pem", "key"].map(|kind| self.folder().join(format!("{name}.{kind}")))
    }

    /// The folder of all files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The certificate of the authority, which clients have to trust.
    pub fn authority(&self) -> &Path {
        &self.paths[0]
    }

    /// The certificate of the server.
    pub fn certificate(&self) -> &Path {
        &self.paths[1]
    }

    /// The key of the server.
    pub fn key(&self) -> &Path {
        &self.paths[2]
    }

    /// The certificate of a client named `snowmint`.
    pub fn client_certificate(&self) -> &Path {
        &self.paths[3]
    }

    /// The key of that client.
    pub fn client_key(&self) -> &Path {
        &self.paths[4]
    }
}

fn issue(folder: &Path, name: &str, subject: &str) {
    openssl(folder, &format!("req -nodes -keyout {name}.key -out {name}.csr -subj {subject}"));
    openssl(
        folder,
        &format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.pem -days 30 \
             -extfile extensions"
        ),
    );
    // The users of the servers read the keys too; they protect nothing.
    fs::set_permissions(folder.join(format!("{name}.key")), Permissions::from_mode(0o644)).unwrap();
}

fn openssl(folder: &Path, arguments: &str) {
    let mut command = Command::new(find("openssl", "openssl"));
    command.envs(FakeClock::new(folder, "-1d").environment());
    command.current_dir(folder).args(arguments.split_whitespace());
    if arguments.starts_with("req") {
        command.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    }
    run(&mut command);
}
