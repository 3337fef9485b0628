//! Two MariaDB servers of one Galera cluster, and the ways in which such a cluster falls apart.

use crate::MariaDb;
use crate::port::Port;
use crate::program::{find, find_file};

/// Two members of a Galera cluster. Alone, the first goes on and the second does not: it has less weight.
#[derive(Debug)]
pub struct GaleraPair {
    servers: [MariaDb; 2],
    /// Those between the members.
    _ports: [[Port; 3]; 2],
}

impl GaleraPair {
    /// Starts both servers, with more settings; returns when both are in one cluster.
    ///
    /// # Panics
    ///
    /// If MariaDB or Galera is not installed, or with the log of a server that does not come up.
    pub fn start(settings: &[&str]) -> Self {
        let library = find_file("/usr/lib/galera/libgalera_smm.so", "galera-4");
        find("rsync", "rsync");
        let ports = [0, 1].map(|_| [0, 1, 2].map(|_| Port::reserve()));
        let member = |at: usize| {
            let [group, transfer, whole] = &ports[at];
            let (first, alone) =
                if at == 0 { (String::new(), 2) } else { (ports[0][0].address().to_string(), 1) };
            let mut own = vec![
                "--wsrep-on=ON".to_owned(),
                format!("--wsrep-provider={}", library.display()),
                format!("--wsrep-cluster-address=gcomm://{first}"),
                format!("--wsrep-node-address={}", group.address()),
                format!("--wsrep-sst-receive-address={}", whole.address()),
                "--wsrep-sst-method=rsync".to_owned(),
                "--binlog-format=ROW".to_owned(),
                "--innodb-autoinc-lock-mode=2".to_owned(),
                format!(
                    "--wsrep-provider-options=gmcast.listen_addr=tcp://{};ist.recv_addr={};pc.weight={alone};gcache.size=8M",
                    group.address(),
                    transfer.address()
                ),
            ];
            if at == 0 {
                own.push("--wsrep-new-cluster".to_owned());
            }
            own.extend(settings.iter().map(ToString::to_string));
            MariaDb::member(&own.iter().map(|it| &**it).collect::<Vec<_>>())
        };
        let servers = [0, 1].map(member);
        let pair = Self { servers, _ports: ports };
        for server in &pair.servers {
            server.wait_until("being two", &status("wsrep_cluster_size", "2"));
        }
        pair
    }

    /// The one that goes on alone.
    pub const fn first(&self) -> &MariaDb {
        &self.servers[0]
    }

    /// The other one.
    pub const fn second(&self) -> &MariaDb {
        &self.servers[1]
    }

    /// A URL of both servers: `mysql://root@HOST,HOST/test`.
    pub fn url(&self) -> String {
        format!("mysql://root@{},{}/test", self.first().address(), self.second().address())
    }

    /// Cuts the members off from each other; returns when the first is a cluster of one, and the second belongs to none.
    ///
    /// # Panics
    ///
    /// If a server is down.
    pub fn part(&self) {
        self.second().sql("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=1'");
        self.first().wait_until("being alone", &status("wsrep_cluster_size", "1"));
        self.second().wait_until("being in no cluster", &status("wsrep_cluster_status", "non-Primary"));
    }

    /// Makes the second, which was cut off, a cluster of its own, as an operator may who takes the first for gone.
    ///
    /// # Panics
    ///
    /// If the server is down.
    pub fn bootstrap_second(&self) {
        self.second().sql("SET GLOBAL wsrep_provider_options = 'pc.bootstrap=YES'");
        self.second().wait_until("being a cluster", &status("wsrep_ready", "ON"));
    }
}

/// Whether a status of Galera has a value. Not from a table: a server that belongs to no cluster shows none.
fn status(name: &str, value: &str) -> String {
    format!("SHOW GLOBAL STATUS WHERE variable_name = '{name}' AND value = '{value}'")
}
