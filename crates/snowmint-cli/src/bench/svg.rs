//! The latencies of a run by percentile, as a standalone SVG image.
//! The horizontal axis gives each further nine the same width, so that the slowest requests are visible.

use std::fmt::Write as _;

use hdrhistogram::Histogram;

use super::time;

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 420.0;
/// The position of the axes.
const LEFT: f64 = 90.0;
const RIGHT: f64 = 775.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 360.0;
/// The percentiles with a grid line, and their numbers of nines.
const MARKS: [(&str, f64); 6] =
    [("0", 0.0), ("50%", 0.301), ("90%", 1.0), ("99%", 2.0), ("99.9%", 3.0), ("99.99%", 4.0)];
const NINES: f64 = 4.0;
const POINTS: u32 = 160;

const STYLE: &str = "\
  <style>
    svg { background: #fff; font: 13px system-ui, sans-serif; }
    text { fill: #333; }
    .grid { stroke: #ddd; stroke-width: 1; }
    .curve { fill: none; stroke: #0a6ebd; stroke-width: 2.5; stroke-linejoin: round; }
    @media (prefers-color-scheme: dark) {
      svg { background: #16181c; }
      text { fill: #ccc; }
      .grid { stroke: #383c42; }
      .curve { stroke: #58a6ff; }
    }
  </style>
";

/// Returns the position of a number of nines.
fn x(nines: f64) -> f64 {
    LEFT + (RIGHT - LEFT) * nines / NINES
}

/// Returns the picture; `what` is the line below its title.
#[expect(clippy::cast_precision_loss, reason = "a picture needs a few digits")]
pub(super) fn curve(latencies: &Histogram<u64>, what: &str) -> String {
    let us = |ns: u64| ns.max(1) as f64 / 1000.0;
    // Whole powers of ten around all latencies, and at least one.
    let low = us(latencies.min().max(1)).log10().floor();
    let high = us(latencies.max()).log10().ceil().max(low + 1.0);
    let y = |us: f64| BOTTOM - (BOTTOM - TOP) * (us.log10().clamp(low, high) - low) / (high - low);
    let what = what.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"latency by percentile\">\n{STYLE}  <text x=\"{LEFT}\" y=\"26\" font-weight=\"600\">Latency by \
         percentile, {} requests</text>\n  <text x=\"{LEFT}\" y=\"46\">{what}</text>\n",
        latencies.len()
    );
    // Writing to a `String` does not fail.
    for (name, nines) in MARKS {
        let x = x(nines);
        let _ = writeln!(
            svg,
            "  <line class=\"grid\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{BOTTOM}\"/>\n  <text x=\"{x:.1}\" y=\"{}\" \
             text-anchor=\"middle\">{name}</text>",
            BOTTOM + 20.0
        );
    }
    let mut power = low;
    while power <= high {
        let us = 10_f64.powf(power);
        let _ = writeln!(
            svg,
            "  <line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\"/>\n  <text x=\"{}\" y=\"{:.1}\" \
             text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            y(us) + 4.0,
            time(us),
            y = y(us)
        );
        power += 1.0;
    }
    let points: Vec<_> = (0..=POINTS)
        .map(|nth| {
            let nines = NINES * f64::from(nth) / f64::from(POINTS);
            let latency = us(latencies.value_at_quantile(1.0 - 10_f64.powf(-nines)));
            format!("{:.1},{:.1}", x(nines), y(latency))
        })
        .collect();
    let _ = writeln!(svg, "  <polyline class=\"curve\" points=\"{}\"/>\n</svg>", points.join(" "));
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_rises_inside_its_axes() {
        let mut latencies = Histogram::<u64>::new(3).unwrap();
        for ns in 1..20_000 {
            latencies.record(ns * 997).unwrap();
        }
        let svg = curve(&latencies, "a <b> & c");
        assert!(svg.contains("a &lt;b&gt; &amp; c") && svg.ends_with("</svg>\n"), "{svg}");
        let (_, points) = svg.split_once("points=\"").unwrap();
        let (points, _) = points.split_once('"').unwrap();
        let places: Vec<(f64, f64)> = points
            .split(' ')
            .map(|point| point.split_once(',').unwrap())
            .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
            .collect();
        assert!(places.iter().all(|(x, y)| (LEFT..=RIGHT).contains(x) && (TOP..=BOTTOM).contains(y)));
        assert!(places.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 >= two[1].1), "{points}");
        // Without measurements the curve is empty, and that is not an error.
        assert!(curve(&Histogram::<u64>::new(3).unwrap(), "").ends_with("</svg>\n"));
    }
}
