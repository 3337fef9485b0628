//! URLs that name no counter.

use super::{SECRET, refused};

#[tokio::test]
async fn a_mistake_in_a_url_is_told_without_its_password() {
    let cases = [
        (format!("mongo://u:{SECRET}@h/db"), "no counter from `mongo:`"),
        ("leaf_alloc".to_owned(), "no counter from `:`"),
        #[cfg(feature = "mysql")]
        (format!("leaf:mysql://u:{SECRET}@h/db"), "needs tag=, such as leaf:mysql://"),
        #[cfg(feature = "mysql")]
        (
            format!("leaf:mysql://u:{SECRET}@h/db?tag=a&step=5"),
            "no parameter `step`, only tag, password_file",
        ),
        #[cfg(feature = "mysql")]
        (format!("leaf:postgres://u:{SECRET}@h/db?tag=a"), "needs mysql:// or mariadb:// after it"),
        #[cfg(feature = "mysql")]
        (format!("leaf:mysql://u:{SECRET}@h?tag=a"), "needs a database"),
        #[cfg(feature = "mysql")]
        (format!("leaf:{SECRET}"), "needs mysql://"),
        #[cfg(feature = "mysql")]
        (format!("tinyid:mysql://u:{SECRET}@h/db?biz_type="), "needs biz_type="),
        #[cfg(feature = "mysql")]
        (format!("tickets:mysql://u:{SECRET}@h/db?tables=a"), "no parameter `tables`, only table, stub"),
        #[cfg(feature = "redis")]
        (format!("redis-counter:redis://u:{SECRET}@h/0"), "needs counter="),
        #[cfg(feature = "redis")]
        (format!("redis-counter:redis://u:{SECRET}@h/0?counter=a&prefix=b"), "no parameter `prefix`"),
        #[cfg(feature = "redis")]
        (format!("redis-counter:mysql://u:{SECRET}@h/0?counter=a"), "needs redis:// or rediss://"),
    ];
    for (url, says) in cases {
        let (kind, error) = refused(&url).await;
        assert!(kind.is_none() && error.contains(says), "{error}");
    }
}
