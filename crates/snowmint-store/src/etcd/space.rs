//! The space that etcd has left. etcd keeps each version of a key until it compacts its history, so every
//! renewal of a lease takes space. At the quota it refuses all writes until somebody has made room.

use super::wire::StatusResponse;

/// The quota of a member that states none: `--quota-backend-bytes` by default.
const DEFAULT_QUOTA: i64 = 2 << 30;
const MIB: i64 = 1 << 20;

/// Returns what is wrong with the space of a member: its alarms, and a data file of at least half the quota.
pub(super) fn warnings(host: &str, status: &StatusResponse) -> Vec<String> {
    let alarm = |error: &String| format!("etcd member {host} reports {}", error.trim());
    let mut warnings: Vec<String> = status.errors.iter().map(alarm).collect();
    let (quota, of_quota) = match status.db_size_quota {
        0 => (DEFAULT_QUOTA, "the default quota (it does not say which it has)"),
        // A negative quota is none.
        quota => (quota, "its quota"),
    };
    if quota > 0 && status.db_size >= quota / 2 {
        warnings.push(format!(
            "etcd member {host} has a data file of {} MiB ({} MiB in use), at least half of {of_quota}, {} MiB, at which it refuses all \
             writes: start it with --auto-compaction-mode=periodic --auto-compaction-retention=1h, and run `etcdctl defrag`",
            status.db_size / MIB,
            status.db_size_in_use / MIB,
            quota / MIB
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a member is named from half of its quota, or of the default if it states none, and with each
    /// alarm. Method: the statuses of etcd 3.4 (no quota) and 3.6.
    #[test]
    fn half_of_the_quota_is_a_warning() {
        let status = |mib: i64, quota: i64, errors: &[&str]| StatusResponse {
            db_size: mib * MIB,
            db_size_in_use: MIB,
            db_size_quota: quota,
            errors: errors.iter().map(|&it| it.to_owned()).collect(),
        };
        for (status, words) in [
            (status(1023, 0, &[]), &[][..]),
            (status(1024, 0, &[]), &["1024 MiB (1 MiB in use), at least half of the default quota"]),
            (status(1024, 8 << 30, &[]), &[]),
            (status(4096, 8 << 30, &[]), &["at least half of its quota, 8192 MiB"]),
            (status(4096, -1, &[]), &[]),
            (
                status(2048, 0, &["memberID:1 alarm:NOSPACE "]),
                &["h:2379 reports memberID:1 alarm:NOSPACE", "etcdctl defrag"],
            ),
        ] {
            let found = warnings("h:2379", &status);
            assert_eq!(found.len(), words.len(), "{found:?}");
            for (found, words) in found.iter().zip(words) {
                assert!(found.contains(words), "{found}");
            }
        }
    }
}
