//! URLs as they may be shown: without users and passwords.

/// Returns a URL without user and password, even if it is invalid: a password may contain characters that end
/// a part of a URL.
pub fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        // A path, or a path mistaken for a URL.
        let is_path = url.starts_with("sqlite:");
        return if is_path { url } else { url.rsplit_once('@').map_or(url, |(_, public)| public) }.to_owned();
    };
    let (user_and_base, query) =
        rest.split_once('?').map_or((rest, None), |(base, query)| (base, Some(query)));
    let public = match user_and_base.rsplit_once('@') {
        Some((_, base)) if query.is_none_or(|query| is_query(query) && !may_end_a_password(query)) => {
            query.map_or_else(|| base.to_owned(), |query| format!("{base}?{query}"))
        }
        // No user: nothing before the `?` can be the beginning of a password.
        None if !user_and_base.contains(':') && query.is_some_and(is_query) => rest.to_owned(),
        // Without an `@` before it, the `?` may be in the password, which may begin with digits as a port
        // does.
        _ => rest.rsplit_once('@').map_or(rest, |(_, public)| public).to_owned(),
    };
    let (base, query) = public.split_once('?').map_or((&*public, None), |(base, query)| (base, Some(query)));
    let mut shown = format!("{scheme}://{base}");
    for (nth, parameter) in query.into_iter().flat_map(|query| query.split('&')).enumerate() {
        shown.push(if nth == 0 { '?' } else { '&' });
        let name = parameter.split('=').next().unwrap_or(parameter);
        let is_secret =
            ["pass", "secret", "token"].iter().any(|word| name.to_ascii_lowercase().contains(word));
        // The path of a password file is not secret.
        if is_secret && !name.ends_with("_file") {
            shown.push_str(name);
            shown.push_str("=...");
        } else {
            shown.push_str(parameter);
        }
    }
    shown
}

/// Returns a URL as [`without_credentials`], with `...@` in place of a user and password, for an error about
/// it.
pub fn masked(url: &str) -> String {
    let shown = without_credentials(url);
    let had_user = url.matches('@').count() > shown.matches('@').count();
    match shown.split_once("://") {
        _ if !had_user => shown,
        Some((scheme, rest)) => format!("{scheme}://...@{rest}"),
        None => format!("...@{shown}"),
    }
}

/// Returns whether a text after `?` consists of parameters. Otherwise it may be the end of a password.
fn is_query(text: &str) -> bool {
    text.split('&').all(|parameter| {
        let name = parameter.split_once('=').map_or("", |(name, _)| name);
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
    })
}

/// Returns whether a query after a user may be the end of its password: a parameter has an `@`, which only
/// tags of Leaf have.
fn may_end_a_password(query: &str) -> bool {
    query.split('&').any(|parameter| parameter.contains('@') && !parameter.starts_with("tag="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        for (url, expected) in [
            ("redis://user:p%40ss@host:6379/1?prefix=x", "redis://host:6379/1?prefix=x"),
            ("etcd://a:1,b:2", "etcd://a:1,b:2"),
            ("postgres://u@h?tls=on", "postgres://h?tls=on"),
            ("leaf:mysql://leaf:p@db/leaf?tag=a@b", "leaf:mysql://db/leaf?tag=a@b"),
            ("sqlite:/var/a@b.db", "sqlite:/var/a@b.db"),
            ("postgres://u:p/w@h:1/db", "postgres://h:1/db"),
            ("redis://:p?w@h", "redis://h"),
            ("redis://[::1]:6379,h", "redis://[::1]:6379,h"),
            ("mysql://h/db?password=p&tls=on", "mysql://h/db?password=...&tls=on"),
            ("me:secret@db", "db"),
            // A password may begin like a port, and contain anything.
            ("postgres://u:123?x@h/db", "postgres://h/db"),
            ("redis://:?w@h:1", "redis://h:1"),
            ("postgres://u:1/2?x@h/db?password=p", "postgres://h/db?password=..."),
            ("postgres://u:p@ss?x@h/db", "postgres://h/db"),
            ("postgres://u:p?a=b@h/db", "postgres://h/db"),
            ("redis://h:x?password=p", "redis://h:x?password=..."),
            ("http://u:pw@h:4318", "http://h:4318"),
            ("postgres://u:p@ss?a=b@h/db", "postgres://h/db"),
            ("postgres://u:123?a=b@h/db", "postgres://h/db"),
            ("postgres://h/db?application_name=a@b", "postgres://h/db?application_name=a@b"),
        ] {
            assert_eq!(without_credentials(url), expected);
        }
    }

    #[test]
    fn an_error_says_where_the_password_was() {
        for (url, expected) in [
            ("http://u:p@h:1", "http://...@h:1"),
            ("u:p@h", "...@h"),
            ("h:1", "h:1"),
            ("http://h/?token=x", "http://h/?token=..."),
        ] {
            assert_eq!(masked(url), expected);
        }
    }
}
