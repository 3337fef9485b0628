//! The destination of request traces, from the flags or from the variables of OpenTelemetry.

#[cfg(feature = "otlp")]
pub(super) use with_otlp::apply;
#[cfg(not(feature = "otlp"))]
pub(super) use without_otlp::apply;

/// Parses a share of requests.
pub(super) fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| "expected 0 to 1, such as 0.01".to_owned())
}

#[cfg(feature = "otlp")]
mod with_otlp {
    use hyper::header::{HeaderName, HeaderValue};
    use percent_encoding::percent_decode_str;
    use snowmint_server::{SampleRatio, Settings, TraceSettings};

    use crate::error::Failure;

    /// The environment variables that every OpenTelemetry program reads.
    const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
    const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";

    /// Sets where traces go, if the flag or the variable names a collector.
    pub(in crate::serve) fn apply(
        settings: &mut Settings,
        endpoint: Option<&str>,
        ratio: f64,
    ) -> Result<(), Failure> {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let (flag, endpoint) = match (endpoint, variable(ENDPOINT)) {
            (Some(endpoint), _) => ("--otlp-endpoint", endpoint.to_owned()),
            (None, Some(endpoint)) => (ENDPOINT, endpoint),
            (None, None) => return Ok(()),
        };
        let endpoint = endpoint.parse().map_err(|error| Failure::flag(flag, error))?;
        let headers = variable(HEADERS).map_or_else(|| Ok(Vec::new()), |text| headers(&text))?;
        let service_name = variable(SERVICE_NAME).unwrap_or_else(|| "snowmint".to_owned());
        let ratio = SampleRatio::new(ratio).map_err(|error| Failure::flag("--otlp-sample-ratio", error))?;
        settings.traces = Some(TraceSettings { endpoint, headers, service_name, ratio });
        Ok(())
    }

    /// Parses `name=value,..`, whose values are percent-encoded. No error shows a value, since it may be a
    /// key.
    fn headers(text: &str) -> Result<Vec<(HeaderName, HeaderValue)>, Failure> {
        let header = |pair: &str| {
            let (name, value) = pair.split_once('=')?;
            let value: Vec<u8> = percent_decode_str(value.trim()).collect();
            let mut value = HeaderValue::from_bytes(&value).ok()?;
            value.set_sensitive(true);
            Some((name.trim().parse().ok()?, value))
        };
        let parsed =
            text.split(',').filter(|pair| !pair.trim().is_empty()).map(header).collect::<Option<_>>();
        parsed.ok_or_else(|| Failure::flag(HEADERS, "invalid headers: expected NAME=VALUE,NAME=VALUE"))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn headers_are_those_of_the_standard() {
            let parsed = headers("api-key=a%20b, X-Other = c==,").unwrap();
            let shown =
                |(name, value): &(HeaderName, HeaderValue)| format!("{name}: {}", value.to_str().unwrap());
            assert_eq!(parsed.iter().map(shown).collect::<Vec<_>>(), ["api-key: a b", "x-other: c=="]);
            for bad in ["secret", "a b=secret", "a=secret%0a"] {
                let error = format!("{:?}", headers(bad).unwrap_err());
                assert!(!error.contains("secret"), "{error}");
            }
        }
    }
}

#[cfg(not(feature = "otlp"))]
mod without_otlp {
    use snowmint_server::Settings;

    use crate::error::Failure;

    /// Rejects the flag. Without the feature, the variables of OpenTelemetry are ignored: they are meant for
    /// other programs.
    pub(in crate::serve) fn apply(
        _settings: &mut Settings,
        endpoint: Option<&str>,
        _ratio: f64,
    ) -> Result<(), Failure> {
        match endpoint {
            None => Ok(()),
            Some(_) => Err(Failure::flag(
                "--otlp-endpoint",
                "this build has no OpenTelemetry: build it with `cargo build --features otlp`",
            )),
        }
    }
}
