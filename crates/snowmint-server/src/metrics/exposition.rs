//! From `OpenMetrics` to the text form of Prometheus 0.0.4, which every reader knows: the samples are the same, the lines
//! that describe them are not.

/// The same metrics in the older form.
///
/// # Source
///
/// `OpenMetrics` 1.0: a counter's name lacks the `_total` of its samples, an info's the `_info`; both are part of the name
/// in the older form, which knows neither infos, units nor an end.
pub(super) fn classic(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let described = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' '));
        // The type stands behind the help.
        let Some((name, help)) = described else {
            if !line.starts_with("# ") {
                push(&mut out, &[line]);
            }
            continue;
        };
        let kind = lines.next_if(|line| line.starts_with("# TYPE ")).and_then(|line| line.rsplit(' ').next());
        let (suffix, kind) = match kind.unwrap_or("unknown") {
            "counter" => ("_total", "counter"),
            "info" => ("_info", "gauge"),
            "unknown" => ("", "untyped"),
            kind => ("", kind),
        };
        push(&mut out, &["# HELP ", name, suffix, " ", help]);
        push(&mut out, &["# TYPE ", name, suffix, " ", kind]);
    }
    out
}

fn push(out: &mut String, parts: &[&str]) {
    for part in parts {
        out.push_str(part);
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_lines_that_describe_differ() {
        let text = "# HELP a_requests Requests.\n# TYPE a_requests counter\na_requests_total{b=\"c d\"} 1\n\
                    # HELP a_build What.\n# TYPE a_build info\na_build_info{v=\"1\"} 1\n\
                    # HELP a_open Open ones.\n# TYPE a_open gauge\n# UNIT a_open seconds\na_open 2.5\n# EOF\n";
        let wanted = "# HELP a_requests_total Requests.\n# TYPE a_requests_total counter\na_requests_total{b=\"c d\"} 1\n\
                      # HELP a_build_info What.\n# TYPE a_build_info gauge\na_build_info{v=\"1\"} 1\n\
                      # HELP a_open Open ones.\n# TYPE a_open gauge\na_open 2.5\n";
        assert_eq!(classic(text), wanted);
    }
}
