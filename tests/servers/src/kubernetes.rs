//! The control plane of a Kubernetes cluster without machines: a real etcd and real API servers, with roles,
//! tokens and TLS, from the folder that `kubernetes.sh` fills.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::json;

use crate::Certificates;
use crate::etcd::Etcd;
use crate::port::Port;
use crate::process::{mortal, run};
use crate::server::{Server, folder};
use crate::snowmint::workspace;

/// A control plane.
pub struct Kubernetes {
    servers: Vec<Server>,
    etcd: Etcd,
    access: Arc<Access>,
}

/// How an administrator reaches the API servers.
struct Access {
    certificates: Certificates,
    certificate: PathBuf,
    key: PathBuf,
}

impl Kubernetes {
    /// Starts etcd and one API server.
    ///
    /// # Panics
    ///
    /// If the programs are not built; the message names the command. With its log if a server does not come up.
    pub fn start() -> Self {
        Self::with(1, &[])
    }

    /// Starts etcd and that many API servers, all with more flags.
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start).
    pub fn with(count: usize, flags: &[&str]) -> Self {
        let etcd = Etcd::of(&program("etcd"));
        let certificates = Certificates::make();
        let [certificate, key] = certificates.issue("admin", "/O=system:masters/CN=admin");
        let access = Arc::new(Access { certificates, certificate, key });
        let one = || Server::start(|| api_server(&etcd, &access, flags), Server::up);
        Self { servers: (0..count).map(|_| one()).collect(), etcd, access }
    }

    /// The etcd behind the API servers.
    pub fn etcd(&self) -> &Server {
        &self.etcd
    }

    /// The API servers.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The first API server.
    pub fn server(&self) -> &Server {
        &self.servers[0]
    }

    /// The authority that signs the certificates of the API servers.
    pub fn authority(&self) -> &Path {
        self.access.certificates.authority()
    }

    /// Runs `kubectl` as an administrator; it must succeed. Returns what it wrote to its standard output.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub fn kubectl(&self, args: &[&str]) -> String {
        let output = run(self.access.kubectl(self.server().port()).args(args));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs `helm` as an administrator; it must succeed. Returns what it wrote to its standard output.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub fn helm(&self, args: &[&str]) -> String {
        let config = self.access.write_config(self.server().port());
        let mut command = self.access.command("helm");
        let output = run(command.arg("--kubeconfig").arg(config).args(args));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The definition of a `PodMonitor`, which the Prometheus Operator brings.
    pub fn pod_monitor(&self) -> PathBuf {
        program("podmonitors.yaml")
    }

    /// Creates a namespace with the objects of `packaging/kubernetes/base/account.yaml`: the account of the pods,
    /// and its role.
    ///
    /// # Panics
    ///
    /// If the API server refuses one.
    pub fn add_namespace(&self, name: &str) {
        self.kubectl(&["create", "namespace", name]);
        let account = workspace().join("packaging/kubernetes/base/account.yaml");
        self.kubectl(&["apply", "--namespace", name, "--filename", account.to_str().unwrap()]);
    }

    /// Writes a new token of the account in that namespace, valid for that long, such as `1h`, to a file in the
    /// same way as the kubelet: the file appears at once, with its whole text.
    ///
    /// # Panics
    ///
    /// If the API server issues none.
    pub fn write_token(&self, namespace: &str, duration: &str, file: &Path) {
        let args = ["create", "token", "snowmint", "--namespace", namespace, "--duration", duration];
        let token = self.kubectl(&args);
        let new = file.with_extension("new");
        fs::write(&new, token.trim()).unwrap();
        fs::rename(&new, file).unwrap();
    }

    /// The URL of the store in that namespace for an account with this token, through this port of the machine.
    pub fn store_url(&self, namespace: &str, token: &Path, port: u16) -> String {
        let (token, authority) = (token.display(), self.authority().display());
        format!("kubernetes:{namespace}?server=https://127.0.0.1:{port}&token_file={token}&ca={authority}")
    }
}

impl fmt::Debug for Kubernetes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} on {:?}", self.servers, self.etcd())
    }
}

impl Access {
    fn kubectl(&self, port: u16) -> Command {
        let mut command = self.command("kubectl");
        let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
        command
            .arg(format!("--server=https://127.0.0.1:{port}"))
            .arg(flag("certificate-authority", self.certificates.authority()))
            .arg(flag("client-certificate", &self.certificate))
            .arg(flag("client-key", &self.key));
        command
    }

    /// Without the settings of the user who runs the tests.
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(program(name));
        command.env_clear().env("HOME", self.certificates.folder()).stdin(Stdio::null());
        command
    }

    /// Writes the same flags as a file, which `helm` needs.
    fn write_config(&self, port: u16) -> PathBuf {
        let path = self.certificates.folder().join("config");
        let cluster = json!({
            "server": format!("https://127.0.0.1:{port}"),
            "certificate-authority": self.certificates.authority(),
        });
        let user = json!({"client-certificate": self.certificate, "client-key": self.key});
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        });
        fs::write(&path, config.to_string()).unwrap();
        path
    }
}

/// Returns the path of a program that `kubernetes.sh` builds, in `$SNOWMINT_TEST_KUBERNETES` or the target folder.
fn program(name: &str) -> PathBuf {
    let folder = std::env::var_os("SNOWMINT_TEST_KUBERNETES")
        .map_or_else(|| workspace().join("target/kubernetes"), PathBuf::from);
    let program = folder.join(name);
    assert!(
        program.is_file(),
        "{} is missing: build it with `tests/servers/kubernetes.sh target/kubernetes`",
        program.display()
    );
    program
}

fn api_server(etcd: &Etcd, access: &Arc<Access>, flags: &[&str]) -> Server {
    let (program, port) = (program("kube-apiserver"), Port::reserve());
    let made = &access.certificates;
    let (key, number) = (made.key().display(), port.number());
    let mut arguments = vec![
        format!("--etcd-servers=http://{}", etcd.address()),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={number}"),
        format!("--tls-cert-file={}", made.certificate().display()),
        format!("--tls-private-key-file={key}"),
        format!("--client-ca-file={}", made.authority().display()),
        "--authorization-mode=RBAC".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        // A certificate is one form of a public key.
        format!("--service-account-key-file={}", made.certificate().display()),
        format!("--service-account-signing-key-file={key}"),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        // It would look for an address of this machine that others can reach.
        "--endpoint-reconciler-type=none".to_owned(),
    ];
    arguments.extend(flags.iter().map(ToString::to_string));
    let command = move || {
        let mut command = mortal(None, &program);
        command.args(&arguments);
        command
    };
    let access = Arc::clone(access);
    let ready =
        move || access.kubectl(number).args(["get", "--raw", "/readyz"]).output().unwrap().status.success();
    Server::new("kube-apiserver", vec![port], folder("kube-apiserver"), command, ready)
}
