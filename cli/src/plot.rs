//! Draws results as a picture (SVG): for every collective at every rank count a row of two panels, time over
//! size and bus bandwidth over size, a line for each library or algorithm.
//!
//! Sizes and times are on logarithmic axes, bandwidths on a linear one. A name has the same colour in
//! all panels.

use std::fmt::Write;

use crate::job::table::ResultRow;
use crate::values::size_text;

/// Width of a panel, without its labels.
const WIDE: f64 = 400.0;
const HIGH: f64 = 250.0;
/// Width left of a panel, for the labels of its axis.
const LEFT: f64 = 74.0;
/// Height above the panels of a row, for its title, and what the axes are.
const ABOVE: f64 = 62.0;
/// Height below the panels, for the labels of sizes.
const BELOW: f64 = 50.0;
/// Width right of the panels, for the names.
const LEGEND: f64 = 170.0;
const WIDTH: f64 = 2.0 * (LEFT + WIDE) + LEGEND;

/// Ours stand out by dark colours and wide lines; the others are distinct on any screen and by the colour-blind.
const OURS: [&str; 4] = ["#111111", "#0057b8", "#6a3d9a", "#7a4a00"];
const PEERS: [&str; 8] =
    ["#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#999933", "#777777", "#aa4466"];

/// All results of a bench.
#[derive(Debug, Default)]
pub(crate) struct BenchPlot {
    rows: Vec<PlotRow>,
    /// All names, and whether they are ours.
    names: Vec<(String, bool)>,
}

/// The two panels of a title.
#[derive(Debug)]
struct PlotRow {
    title: String,
    series: Vec<PlotSeries>,
}

/// The results of one library or algorithm.
#[derive(Debug)]
struct PlotSeries {
    /// Index of its name.
    name: usize,
    points: Vec<PlotPoint>,
}

#[derive(Debug, Clone, Copy)]
struct PlotPoint {
    bytes: f64,
    time_us: f64,
    busbw_gbs: f64,
}

impl BenchPlot {
    /// Adds a result. What has no place on a logarithmic axis is left out. Of several results of one name at one
    /// size, as a library has that was measured beside several algorithms, the fastest is drawn.
    pub(crate) fn add(&mut self, title: &str, name: &str, line: &ResultRow) {
        if line.bytes == 0 || line.time_us <= 0.0 {
            return;
        }
        let point = PlotPoint {
            bytes: line.bytes as f64,
            time_us: line.time_us,
            busbw_gbs: line.busbw_gbs,
        };
        self.place(title, name, line.peer.is_none(), point);
    }

    /// Adds a time. A name that stands out has the look of ours; its bus bandwidth is `factor` times its bandwidth.
    pub(crate) fn add_point(
        &mut self,
        title: &str,
        name: &str,
        stands_out: bool,
        bytes: u64,
        time_us: f64,
        factor: f64,
    ) {
        let bytes = bytes as f64;
        let point = PlotPoint { bytes, time_us, busbw_gbs: factor * bytes / time_us / 1e3 };
        self.place(title, name, stands_out, point);
    }

    fn place(&mut self, title: &str, name: &str, is_ours: bool, point: PlotPoint) {
        let name = index(&mut self.names, |n| n.0 == name, || (name.into(), is_ours));
        let new = || PlotRow { title: title.into(), series: Vec::new() };
        let row = index(&mut self.rows, |r| r.title == title, new);
        let all = &mut self.rows[row].series;
        let at = index(all, |s| s.name == name, || PlotSeries { name, points: Vec::new() });
        let points = &mut all[at].points;
        match points.iter_mut().find(|p| p.bytes == point.bytes) {
            Some(known) if known.time_us > point.time_us => *known = point,
            Some(_) => {}
            None => points.push(point),
        }
    }

    /// Returns the picture, if there is anything to see.
    pub(crate) fn draw(&self) -> Option<String> {
        if self.rows.is_empty() {
            return None;
        }
        let row = ABOVE + HIGH + BELOW;
        let height = row * self.rows.len() as f64 + 10.0;
        let mut out = SvgText(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             width=\"{WIDTH}\" height=\"{height}\" font-family=\"system-ui, sans-serif\" \
             font-size=\"12\" fill=\"#333\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        ));
        for (i, r) in self.rows.iter().enumerate() {
            self.row(&mut out, r, row * i as f64);
        }
        Some(out.0 + "</svg>\n")
    }

    fn row(&self, out: &mut SvgText, row: &PlotRow, top: f64) {
        let points = || row.series.iter().flat_map(|s| &s.points);
        let sizes = LogAxis::new(2.0, points().map(|p| p.bytes));
        let times = LogAxis::new(10.0, points().map(|p| p.time_us));
        let most = points().map(|p| p.busbw_gbs).fold(0.0, f64::max);
        let time = PlotPanel { left: LEFT, top: top + ABOVE };
        let bandwidth = PlotPanel { left: 2.0 * LEFT + WIDE, ..time };
        out.text(
            time.left,
            top + 22.0,
            "start",
            "font-size=\"15\" font-weight=\"600\"",
            &row.title,
        );
        time.frame(out, "time of a call", &sizes);
        bandwidth.frame(out, "bus bandwidth, GB/s", &sizes);
        for (at, text) in times.ticks(time_text) {
            time.level(out, at, &text);
        }
        let scale = step(most);
        let top_level = (most / scale).ceil().max(1.0) * scale;
        for k in 0..=(top_level / scale).round() as u32 {
            let value = f64::from(k) * scale;
            bandwidth.level(out, value / top_level, &trimmed(value));
        }
        for series in &row.series {
            let look = self.look(series.name);
            let on = |y: &dyn Fn(&PlotPoint) -> f64| -> Vec<(f64, f64)> {
                series.points.iter().map(|p| (sizes.at(p.bytes), y(p))).collect()
            };
            time.line(out, &look, &on(&|p| times.at(p.time_us)));
            bandwidth.line(out, &look, &on(&|p| p.busbw_gbs / top_level));
        }
        for (k, series) in row.series.iter().enumerate() {
            let (x, y) = (bandwidth.left + WIDE + 18.0, bandwidth.top + 12.0 + 20.0 * k as f64);
            let look = self.look(series.name);
            out.path(&look, &[(x, y), (x + 24.0, y)], "key");
            out.mark(&look, x + 12.0, y);
            out.text(x + 31.0, y + 4.0, "start", "", &self.names[series.name].0);
        }
    }

    fn look(&self, name: usize) -> LineStyle {
        let ours = self.names[name].1;
        let before = self.names[..name].iter().filter(|n| n.1 == ours).count();
        let colours: &[&'static str] = if ours { &OURS } else { &PEERS };
        LineStyle {
            colour: colours[before % colours.len()],
            width: if ours { 2.6 } else { 1.5 },
            // Colours that come again come with dashes.
            dashed: before >= colours.len(),
            square: ours,
        }
    }
}

/// Returns the index of the item for which `is` holds, or of a new one.
fn index<T>(items: &mut Vec<T>, is: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> usize {
    items.iter().position(is).unwrap_or_else(|| {
        items.push(new());
        items.len() - 1
    })
}

/// The style of a line.
struct LineStyle {
    colour: &'static str,
    width: f64,
    dashed: bool,
    square: bool,
}

/// A logarithmic axis.
struct LogAxis {
    base: f64,
    from: f64,
    to: f64,
}

impl LogAxis {
    /// Makes an axis from the power of the base below the least value to that above the greatest.
    fn new(base: f64, values: impl Iterator<Item = f64>) -> LogAxis {
        let logs = values.map(|v| v.log(base));
        let (least, most) = logs.fold((f64::MAX, f64::MIN), |(a, b), l| (a.min(l), b.max(l)));
        // Powers themselves are not quite whole.
        let (from, to) = ((least + 1e-9).floor(), (most - 1e-9).ceil());
        LogAxis { base, from, to: to.max(from + 1.0) }
    }

    /// Returns the position of a value on the axis, from 0 to 1.
    fn at(&self, value: f64) -> f64 {
        (value.log(self.base) - self.from) / (self.to - self.from)
    }

    /// Returns at most nine powers of the base, evenly, and their texts.
    fn ticks(&self, text: impl Fn(f64) -> String) -> Vec<(f64, String)> {
        let powers = (self.to - self.from) as usize;
        let step = powers / 9 + 1;
        let tick = |k: usize| {
            let value = self.base.powf(self.from + k as f64);
            (self.at(value), text(value))
        };
        (0..=powers).step_by(step).map(tick).collect()
    }
}

/// Returns a round step that divides a linear axis into four to eight parts.
fn step(most: f64) -> f64 {
    if most <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf((most / 4.0).log10().floor());
    let parts = most / 4.0 / power;
    power
        * if parts < 2.0 {
            1.0
        } else if parts < 5.0 {
            2.0
        } else {
            5.0
        }
}

/// Returns a number without zeros at its end.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

/// Prints microseconds in the unit that people read.
fn time_text(us: f64) -> String {
    match us {
        us if us < 0.9e-0 => format!("{} ns", trimmed(us * 1e3)),
        us if us < 0.9e3 => format!("{} us", trimmed(us)),
        us if us < 0.9e6 => format!("{} ms", trimmed(us / 1e3)),
        us => format!("{} s", trimmed(us / 1e6)),
    }
}

/// A panel, by its upper left corner.
#[derive(Clone, Copy)]
struct PlotPanel {
    left: f64,
    top: f64,
}

impl PlotPanel {
    fn frame(self, out: &mut SvgText, title: &str, sizes: &LogAxis) {
        let PlotPanel { left, top } = self;
        out.text(left, top - 10.0, "start", "fill=\"#666\"", title);
        for (at, text) in sizes.ticks(|bytes| size_text(bytes as u64)) {
            let x = left + at * WIDE;
            out.grid(x, top, x, top + HIGH);
            out.text(x, top + HIGH + 17.0, "middle", "", &text);
        }
        let (x, y) = (left + WIDE / 2.0, top + HIGH + 36.0);
        out.text(x, y, "middle", "fill=\"#666\"", "size, bytes");
    }

    /// Draws a line across, and its label.
    fn level(self, out: &mut SvgText, at: f64, text: &str) {
        let y = self.top + HIGH * (1.0 - at);
        out.grid(self.left, y, self.left + WIDE, y);
        out.text(self.left - 7.0, y + 4.0, "end", "", text);
    }

    fn line(self, out: &mut SvgText, look: &LineStyle, points: &[(f64, f64)]) {
        let place = |&(x, y): &(f64, f64)| (self.left + x * WIDE, self.top + (1.0 - y) * HIGH);
        let places: Vec<(f64, f64)> = points.iter().map(place).collect();
        out.path(look, &places, "line");
        places.iter().for_each(|&(x, y)| out.mark(look, x, y));
    }
}

/// The text of a picture.
struct SvgText(String);

impl SvgText {
    /// Appends text. Writing to a string cannot fail.
    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        let _ = self.0.write_fmt(text);
        self.0.push('\n');
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, more: &str, text: &str) {
        let text = escaped(text);
        self.push(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {more}>{text}</text>"
        ));
    }

    fn grid(&mut self, x1: f64, y1: f64, x2: f64, y2: f64) {
        self.push(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#e3e3e3\"/>"
        ));
    }

    fn path(&mut self, look: &LineStyle, points: &[(f64, f64)], class: &str) {
        let LineStyle { colour, width, dashed, .. } = look;
        let dash = if *dashed { " stroke-dasharray=\"6 4\"" } else { "" };
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.push(format_args!(
            "<polyline class=\"{class}\" points=\"{}\" fill=\"none\" stroke=\"{colour}\" \
             stroke-width=\"{width}\" stroke-linejoin=\"round\"{dash}/>",
            points.join(" ")
        ));
    }

    fn mark(&mut self, look: &LineStyle, x: f64, y: f64) {
        let colour = look.colour;
        match look.square {
            true => self.push(format_args!(
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"7\" height=\"7\" fill=\"{colour}\"/>",
                x - 3.5,
                y - 3.5
            )),
            false => self.push(format_args!(
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.8\" fill=\"{colour}\"/>"
            )),
        }
    }
}

/// Escapes text for XML, without what XML cannot carry.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().filter(|c| !c.is_control()) {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_read_by_people() {
        let texts = |log: &LogAxis, text: fn(f64) -> String| -> Vec<String> {
            log.ticks(text).into_iter().map(|t| t.1).collect()
        };
        let sizes = LogAxis::new(2.0, [8.0, 1024.0, 16777216.0].into_iter());
        let size = |v: f64| size_text(v as u64);
        assert_eq!(texts(&sizes, size), ["8", "64", "512", "4K", "32K", "256K", "2M", "16M"]);
        assert_eq!((sizes.at(8.0), sizes.at(16777216.0)), (0.0, 1.0));
        let times = LogAxis::new(10.0, [0.31, 2400.0].into_iter());
        assert_eq!(
            texts(&times, time_text),
            ["100 ns", "1 us", "10 us", "100 us", "1 ms", "10 ms"]
        );
        let one = LogAxis::new(2.0, [64.0].into_iter());
        assert_eq!(texts(&one, size), ["64", "128"]);
        assert_eq!([step(7.3), step(0.9), step(41.0), step(0.0)], [1.0, 0.2, 10.0, 1.0]);
        assert_eq!([trimmed(0.2), trimmed(10.0), trimmed(0.0)], ["0.2", "10", "0"]);
    }
}
