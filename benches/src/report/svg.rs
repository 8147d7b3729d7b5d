//! Plots: bars and lines, for light and dark pages.

use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const OURS: &str = "tower-singleflight";
const STYLE: &str = "\
    text{font:13px system-ui,sans-serif;fill:#24292f}\
    .title{font-size:15px;font-weight:600}\
    .faint{fill:#57606a}\
    .page{fill:#ffffff}\
    .axis{stroke:#d0d7de}\
    .c0{fill:#0969da;stroke:#0969da}.c1{fill:#8c959f;stroke:#8c959f}\
    .c2{fill:#bc4c00;stroke:#bc4c00}.c3{fill:#1a7f37;stroke:#1a7f37}\
    .c4{fill:#8250df;stroke:#8250df}.c5{fill:#9a6700;stroke:#9a6700}\
    .line{fill:none;stroke-width:2}\
    @media (prefers-color-scheme:dark){\
    text{fill:#e6edf3}.faint{fill:#9198a1}.page{fill:#0d1117}.axis{stroke:#30363d}\
    .c0{fill:#4493f8;stroke:#4493f8}.c1{fill:#6e7681;stroke:#6e7681}\
    .c2{fill:#f0883e;stroke:#f0883e}.c3{fill:#3fb950;stroke:#3fb950}\
    .c4{fill:#ab7df8;stroke:#ab7df8}.c5{fill:#d29922;stroke:#d29922}\
    .line{fill:none}}";

fn page(height: f64, title: &str, content: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n<rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
         <text class=\"title\" x=\"16\" y=\"26\">{title}</text>\n{content}</svg>\n",
        title = escaped(title),
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => {
            let digits = format!("{value:.0}");
            let mut grouped = String::new();
            for (at, digit) in digits.chars().enumerate() {
                if at > 0 && (digits.len() - at).is_multiple_of(3) {
                    grouped.push(',');
                }
                grouped.push(digit);
            }
            grouped
        }
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// One bar for each; ours stands out.
pub(super) fn bars(title: &str, unit: &str, bars: &[(&str, f64)]) -> String {
    const LEFT: f64 = 210.0;
    const STEP: f64 = 28.0;
    let most = bars.iter().map(|bar| bar.1).fold(f64::MIN_POSITIVE, f64::max);
    let mut content = String::new();
    for (at, (name, value)) in bars.iter().enumerate() {
        let (y, width) = (44.0 + STEP * at as f64, (value / most * 440.0).max(1.0));
        let class = if name.starts_with(OURS) { "c0" } else { "c1" };
        let _ = writeln!(
            content,
            "<text x=\"{x}\" y=\"{text}\" text-anchor=\"end\">{name}</text>\
             <rect class=\"{class}\" x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"18\" \
             rx=\"2\"/><text class=\"faint\" x=\"{end:.1}\" y=\"{text}\">{value} {unit}</text>",
            x = LEFT - 10.0,
            text = y + 14.0,
            end = LEFT + width + 8.0,
            name = escaped(name),
            value = number(*value),
        );
    }
    page(56.0 + STEP * bars.len() as f64, title, &content)
}

/// A line for each series over steps that are named.
pub(super) fn lines(title: &str, x: &str, y: &str, series: &[(&str, Vec<(&str, f64)>)]) -> String {
    const LEFT: f64 = 70.0;
    const RIGHT: f64 = 500.0;
    const TOP: f64 = 56.0;
    const BOTTOM: f64 = 260.0;
    let most = series.iter().flat_map(|s| &s.1).map(|point| point.1).fold(0.0, f64::max) * 1.1;
    let most = if most > 0.0 { most } else { 1.0 };
    let height = |value: f64| BOTTOM - value / most * (BOTTOM - TOP);
    let mut content = format!("<text class=\"faint\" x=\"16\" y=\"46\">{}</text>\n", escaped(y));
    for step in 0..=4 {
        let value = most * f64::from(step) / 4.0;
        let at = height(value);
        let _ = writeln!(
            content,
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text class=\"faint\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            at + 4.0,
            number(value),
        );
    }
    let steps = series.first().map_or(&[][..], |s| &s.1);
    let across = |at: usize| LEFT + (RIGHT - LEFT) * (at as f64 + 0.5) / steps.len() as f64;
    for (at, (name, _)) in steps.iter().enumerate() {
        let _ = writeln!(
            content,
            "<text class=\"faint\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{name}</text>",
            across(at),
            BOTTOM + 20.0,
        );
    }
    let _ = writeln!(
        content,
        "<text class=\"faint\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        f64::midpoint(LEFT, RIGHT),
        BOTTOM + 42.0,
        escaped(x),
    );
    for (index, (name, points)) in series.iter().enumerate() {
        let class = format!("c{}", index % 6);
        let at = |(at, point): (usize, &(&str, f64))| (across(at), height(point.1));
        let places: Vec<(f64, f64)> = points.iter().enumerate().map(at).collect();
        let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = write!(content, "<polyline class=\"line {class}\" points=\"{}\"/>", path.join(" "));
        for (x, y) in places {
            let _ =
                write!(content, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
        }
        let y = TOP + 10.0 + 24.0 * index as f64;
        let _ = writeln!(
            content,
            "<circle class=\"{class}\" cx=\"{}\" cy=\"{}\" r=\"5\"/><text x=\"{}\" y=\"{y}\">{}</text>",
            RIGHT + 20.0,
            y - 4.0,
            RIGHT + 32.0,
            escaped(name),
        );
    }
    page(BOTTOM + 58.0, title, &content)
}
