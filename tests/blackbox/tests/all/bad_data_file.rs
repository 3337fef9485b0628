//! A data file that is damaged, read-only, or on a full disk: a clear error, no loss, and recovery once the
//! cause is gone. Each server has its disk in a separate mount namespace, which requires root.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use snowmint_test_servers::snowmint::ids::{increase, unix_ms};
use snowmint_test_servers::snowmint::server::assert_says;
use snowmint_test_servers::snowmint::{self, Disk, Ids, Serve, Server, clock_and_disk, third_party};
use snowmint_test_servers::time;

/// A folder whose data file records a lease, and the ids that were made under it. Everything is in that file:
/// SQLite's log beside it would hide damage to the file itself.
fn used(folder: &Path) -> (PathBuf, Ids) {
    let server = Serve::new(folder).start();
    let mut ids = Ids::new();
    ids.add(&server.take(1000));
    server.stop();
    let file = folder.join("data/snowmint.db");
    sqlite(&file, "pragma wal_checkpoint(truncate)");
    (file, ids)
}

/// Runs a statement on a data file with Python's SQLite, not ours.
fn sqlite(file: &Path, statement: &str) {
    let script = "import sqlite3, sys\n\
                  c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]).fetchall(); c.commit(); c.close()";
    third_party::output("python3", ["-c", script, file.to_str().unwrap(), statement]);
}

/// Goal: a node refuses a damaged file before it makes an id, and does not change it. Method: damage of each
/// kind; then the intact file is restored, which must work and repeat no id.
#[test]
fn a_corrupt_data_file() {
    let folder = tempfile::tempdir().unwrap();
    let (file, mut ids) = used(folder.path());
    let sound = fs::read(&file).unwrap();
    let path = file.to_str().unwrap().to_owned();
    let mut header = sound.clone();
    header[..16].copy_from_slice(b"SQLite format 9\0");
    let mut page = sound.clone();
    // The table's page, its header and cells.
    let len = page.len();
    page[len - 4096..].fill(0x5a);
    let text =
        b"this is no database, but it is longer than a header of 100 bytes has to be, so that it is read \
                 as one and found to be none"
            .to_vec();
    for (what, bytes) in [
        ("another file", text),
        ("a damaged header", header),
        ("a damaged page", page),
        ("half a file", sound[..sound.len() / 2].to_vec()),
    ] {
        fs::write(&file, &bytes).unwrap();
        let ended = Serve::new(folder.path()).refused();
        ended.assert_says(&[&path, "invalid data", "backup"]);
        let by_new =
            snowmint::run(folder.path(), ["new", "--data", file.parent().unwrap().to_str().unwrap()]);
        assert_eq!(by_new.status.code(), Some(1), "{what}");
        assert_says(&snowmint::text(&by_new), &[&path, "invalid data"]);
        assert_eq!(fs::read(&file).unwrap(), bytes, "{what}: the file was changed");
    }
    fs::write(&file, &sound).unwrap();
    ids.add(&Serve::new(folder.path()).start().take(1000));
    ids.assert_unique();
}

/// Goal: the data of another program at our path stays unchanged.
#[test]
fn a_file_of_another_program() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let file = data.join("snowmint.db");
    sqlite(&file, "create table theirs (x)");
    let before = fs::read(&file).unwrap();
    Serve::new(folder.path()).refused().assert_says(&["another program", "--data"]);
    assert_eq!(fs::read(&file).unwrap(), before);
}

/// Goal: a read-only data folder gives a clear error. Method: a read-only mount, because root may write
/// anywhere else.
#[test]
fn a_read_only_data_file() {
    let folder = tempfile::tempdir().unwrap();
    let (file, mut ids) = used(folder.path());
    let data = file.parent().unwrap().to_owned();
    let disk = Disk::read_only(&data);
    let path = data.to_str().unwrap();
    Serve::new(folder.path()).on(&disk).refused().assert_says(&[
        path,
        "read-only, nothing was written",
        "writable",
        "--data",
    ]);
    // A folder cannot be created there either.
    let below = data.join("deeper");
    let refused = Serve::new(folder.path()).data(&below).on(&disk).refused();
    refused.assert_says(&[below.to_str().unwrap(), "read-only, nothing was written"]);
    ids.add(&Serve::new(folder.path()).start().take(1000));
    ids.assert_unique();
}

/// Goal: a full disk at the start gives a clear error, for a new file and for an existing one.
#[test]
fn a_full_disk_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let (file, mut ids) = used(folder.path());
    let place = folder.path().join("small");
    fs::create_dir(&place).unwrap();
    let small = Disk::small(&place, 256);
    let filled = format!("(cat /dev/zero > '{0}/ballast' 2>/dev/null; true)", place.display());
    let path = place.join("snowmint.db");

    let empty = small.clone().then(&filled);
    let refused = Serve::new(folder.path()).data(&place).on(&empty).refused();
    refused.assert_says(&[path.to_str().unwrap(), "no space left", "free space"]);

    let copy = format!("cp '{}' '{}'", file.display(), path.display());
    let used = small.then(&copy).then(&filled);
    let refused = Serve::new(folder.path()).data(&place).on(&used).refused();
    refused.assert_says(&[path.to_str().unwrap(), "no space left", "free space"]);
    ids.add(&Serve::new(folder.path()).start().take(1000));
    ids.assert_unique();
}

/// Goal: if the disk fills up while the server runs, it continues to the end of its lease, then rejects
/// requests with the reason and is not ready. It stays alive and recovers once there is space.
#[test]
fn a_full_disk_while_running() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("small");
    fs::create_dir(&place).unwrap();
    let small = Disk::small(&place, 2048);
    let server = Serve::new(folder.path()).data(&place).on(&small).args(["--window", "2s"]).start();
    let mut client = server.client();
    let mut ids = client.next("default", 1000).unwrap().unwrap();

    let ballast = clock_and_disk::fill(&small.seen_by(server.pid()));
    let full_since = time::unix_ms();
    let patience = Duration::from_secs(20);
    let refused =
        time::eventually("the lease ends", patience, || match client.next("default", 10).unwrap() {
            Ok(more) => {
                ids.extend(more);
                None
            }
            Err(error) => Some(error),
        });
    let last_made = unix_ms(*ids.last().unwrap());
    assert!(last_made >= full_since, "the lease that was granted is used to its end");
    assert!(refused.starts_with("NOTREADY "), "{refused}");
    assert_says(&refused, &["no ids can be made now"]);
    let ready = server.get("/readyz");
    assert_eq!(ready.status, 503, "{}", ready.body);
    assert_eq!(server.get("/healthz").status, 200);
    let why = time::eventually("the reason reaches clients", patience, || {
        let error = client.next("default", 1).unwrap().err()?;
        error.contains("no space left").then_some(error)
    });
    assert_says(&why, &["no space left", "free space"]);
    assert_says(&server.get("/readyz").body, &["no space left"]);
    assert_says(&server.log_with("no space left", patience), &["WARN"]);
    assert!(server.metric("snowmint_store_errors_total") >= 1.0);

    fs::remove_file(ballast).unwrap();
    let again = time::eventually("it goes on", patience, || client.next("default", 1000).unwrap().ok());
    ids.extend(again);
    assert!(increase(&ids));
    time::eventually("and says so", patience, || server.ready().then_some(()));
    stop(server);
}

fn stop(server: Server) {
    let log = server.stop().log;
    assert!(log.contains("lease released"), "{log}");
}
