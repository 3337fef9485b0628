//! The ZooKeeper store against servers that do not follow the protocol: a real one whose answers are changed on
//! their way, and one that never answers.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use snowmint_store::{Expected, OpenError, StoreErrorKind, Swap, ZooKeeperStore};
use snowmint_test_servers::ZooKeeper;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::support::{key, put, traffic};

/// What happens to an answer.
#[derive(Clone, Copy, Debug)]
enum Fault {
    AnotherRequest,
    Twice,
    NegativeLength,
    EndlessLength,
    Empty,
    /// Its last bytes are missing, and the frame is complete.
    Shortened,
    /// Its last bytes are missing, and the connection ends.
    CutOff,
    /// A frame that claims to be a list with 2 billion names.
    Other,
}

impl Fault {
    /// Returns what to send instead of an answer.
    fn of(self, answer: &[u8]) -> Vec<u8> {
        let frame = |answer: &[u8]| {
            let length = u32::try_from(answer.len()).unwrap();
            [&length.to_be_bytes(), answer].concat()
        };
        let shortened = &answer[..answer.len() - 5];
        match self {
            Self::AnotherRequest => {
                let mut other = answer.to_vec();
                other[3] ^= 0x40;
                frame(&other)
            }
            Self::Twice => frame(answer).repeat(2),
            Self::NegativeLength => vec![0xff; 64],
            Self::EndlessLength => [&[0x7f, 0xff, 0xff, 0xff], answer].concat(),
            Self::Empty => frame(b""),
            Self::Shortened => frame(shortened),
            Self::CutOff => frame(answer)[..answer.len()].to_vec(),
            Self::Other => frame(&[&answer[..16], &[0x7f, 0xff, 0xff, 0xff, 0, 0]].concat()),
        }
    }
}

/// Passes everything between clients and a server, but for the next answer to a request once there is a fault.
struct Relay {
    address: SocketAddr,
    fault: Arc<Mutex<Option<Fault>>>,
}

impl Relay {
    async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let fault = Arc::new(Mutex::new(None));
        let next = Arc::clone(&fault);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(relay(client, server, Arc::clone(&next)));
            }
        });
        Self { address, fault }
    }

    fn url(&self) -> String {
        format!("zookeeper://{}", self.address)
    }
}

async fn relay(client: TcpStream, server: SocketAddr, fault: Arc<Mutex<Option<Fault>>>) {
    let server = TcpStream::connect(server).await.unwrap();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let answers = async {
        let mut is_first = true;
        while let Ok(length) = from_server.read_u32().await {
            let mut answer = vec![0; usize::try_from(length).unwrap()];
            from_server.read_exact(&mut answer).await.unwrap();
            // Neither the new session, nor what the server sends by itself.
            let is_request = !is_first && answer[0] < 0x80;
            is_first = false;
            let fault = if is_request { fault.lock().unwrap().take() } else { None };
            let sent = match fault {
                Some(fault) => fault.of(&answer),
                None => [&length.to_be_bytes(), &*answer].concat(),
            };
            let passed = to_client.write_all(&sent).await;
            if passed.is_err() || matches!(fault, Some(Fault::CutOff)) {
                return;
            }
        }
    };
    tokio::select! {
        () = answers => {}
        _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
    }
}

/// Goal: an invalid answer ends its session, leaves the outcome of a write unknown, and is no trouble for a read
/// or a later call. Method: each fault, in the answer to a write, to a load and to a list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_answer_ends_its_session_only() {
    let server = ZooKeeper::start();
    let relay = Relay::start(server.address()).await;
    let store = snowmint_store::open_backend(&relay.url()).await.unwrap();
    put(&*store, "folder/first", b"1").await;
    for fault in [
        Fault::AnotherRequest,
        Fault::Twice,
        Fault::NegativeLength,
        Fault::EndlessLength,
        Fault::Empty,
        Fault::Shortened,
        Fault::CutOff,
        Fault::Other,
    ] {
        let name = key(format!("folder/{fault:?}"));
        let inject = || *relay.fault.lock().unwrap() = Some(fault);
        inject();
        let written = store.compare_and_set(&name, Expected::Absent, b"1").await;
        println!("{fault:?}: {written:?}");
        match (fault, written) {
            (Fault::Twice, Ok(Swap::Done(_))) => {}
            (_, Err(error)) => assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{fault:?}: {error}"),
            (_, other) => panic!("{fault:?}: {other:?}"),
        }
        inject();
        assert_eq!(store.load(&name).await.unwrap().unwrap().value, b"1", "{fault:?}");
        inject();
        let listed = store.list("folder/").await.unwrap();
        assert!(listed.iter().any(|(it, _)| *it == name), "{fault:?}: {listed:?}");
        assert!(relay.fault.lock().unwrap().is_none(), "{fault:?}");
    }
}

/// Goal: a server that accepts connections and never answers costs bounded time. Method: a listener that nobody
/// accepts from.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_never_answers_costs_bounded_time() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let certificates = snowmint_test_servers::Certificates::make();
    let address = silent.local_addr().unwrap();
    for url in [
        format!("zookeeper://{address}"),
        format!("zookeepers://{address}?ca={}", certificates.authority().display()),
    ] {
        let started = Instant::now();
        let error = ZooKeeperStore::open(&url).await.unwrap_err();
        assert!(started.elapsed() < traffic::LONGEST_CALL, "{:?}", started.elapsed());
        assert!(
            matches!(&error, OpenError::Store(it) if it.kind() == StoreErrorKind::Unavailable),
            "{error}"
        );
        assert!(error.to_string().contains("no answer within 3000 ms"), "{error}");
    }
}
