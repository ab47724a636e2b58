//! Reads a `cluster.toml`: every mistake with its place, its numbers and what to write.

use super::quantity::Dimension;
use super::value::{FILE, Table, Value, amount, error, kind, quantity, whole};
use super::{Cluster, Host, Link, MAX_DEVICE_SLOTS, Rates};
use pipe_ir::units::Bytes;
use pipe_schedule::units::Ticks;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics, Edit};
use pipe_syntax::json::mark;
use pipe_syntax::source::{Source, Sources};
use pipe_syntax::suggest;
use toml::de::{DeTable, DeValue};

/// The longest text that is read.
const MAX_BYTES: usize = pipe_syntax::parse::MAX_BYTES;
/// The most faults of its form that are told.
const MOST_FAULTS: usize = 4;
/// The longest latency: a second.
const MOST_NANOS: u64 = 1_000_000_000;
const RESERVED: &str = "`reserved` is what the driver and libraries take of the memory, often 1 to 3GiB";
const HELP: &str = "`examples/cluster.toml` is a cluster, and `docs/cluster.md` says what is in it";

impl Cluster {
    /// Reads a cluster.
    ///
    /// # Errors
    /// Everything that is wrong with it, and the one source that this is about.
    pub fn read(source: Source) -> Result<Self, Box<(Diagnostics, Sources)>> {
        match parse(&source) {
            Ok(cluster) => Ok(cluster),
            Err(found) => Err(Box::new((found, Sources { files: vec![source] }))),
        }
    }
}

fn parse(source: &Source) -> Result<Cluster, Diagnostics> {
    let text = source.text.as_str();
    let first = 0..text.chars().next().map_or(0, char::len_utf8);
    if text.len() > MAX_BYTES {
        let message = format!("`{}` has {} bytes; at most {MAX_BYTES} are read", source.name, text.len());
        return Err(vec![error(&first, "", message)]);
    }
    let (document, faults) = DeTable::parse_recoverable(text);
    if !faults.is_empty() {
        let mut told: Diagnostics = faults.iter().map(|fault| malformed(source, fault)).collect();
        told.sort_by_key(|one| one.labels.first().map(|label| label.span));
        told.truncate(MOST_FAULTS);
        return Err(told);
    }
    let root = Table { name: String::new(), place: first, entries: document.get_ref() };
    let mut found = Diagnostics::new();
    let cluster = cluster(source, &root, &mut found);
    found.sort_by_key(|one| one.labels.first().map(|label| label.span));
    match cluster {
        Some(cluster) if found.is_empty() => Ok(cluster),
        _ => Err(found),
    }
}

fn malformed(source: &Source, fault: &toml::de::Error) -> Diagnostic {
    let text = source.text.as_str();
    let reason = fault.message().lines().collect::<Vec<_>>().join(", ");
    let message = format!("`{}` is not valid TOML: {}", source.name, reason.replace("invalid", "malformed"));
    let place = fault.span().unwrap_or(0..0);
    let one = if place.is_empty() {
        let start = text[..place.start.min(text.len())].len();
        Diagnostic::error(Code::UnusableCluster, mark(FILE, text, start), "here", message)
    } else {
        error(&place, "here", message)
    };
    one.help(HELP)
}

/// What the tables say; none where a figure is missing.
fn cluster(source: &Source, root: &Table<'_, '_>, found: &mut Diagnostics) -> Option<Cluster> {
    root.only(&["nodes", "devices", "device", "host", "links"], found);
    let most = u64::from(u32::try_from(MAX_DEVICE_SLOTS).unwrap_or(u32::MAX));
    let mut count = |key: &str, example: &str| {
        let value = root.needed(key, example, found)?;
        let read = whole(key, value, (1, most)).map_err(|wrong| found.push(wrong)).ok()?;
        Some((u32::try_from(read).ok()?, value.span()))
    };
    let (nodes, devices) = (count("nodes", "16"), count("devices", "8"));
    if let (Some((nodes, _)), Some((devices, place))) = (&nodes, &devices)
        && u64::from(*nodes) * u64::from(*devices) > MAX_DEVICE_SLOTS
    {
        let message =
            format!("{nodes} nodes of {devices} devices are too many; at most {MAX_DEVICE_SLOTS} are accepted");
        found.push(error(place, "of each node", message));
        return None;
    }
    let device = root.needed_table("device", "the `memory` and `flops` of a device", found);
    let device = device.and_then(|device| self::device(&device, found));
    let host = root.table("host", found).and_then(|host| self::host(&host, found));
    let links = root.needed_table("links", "tables `[links.node]` and `[links.cluster]`", found)?;
    links.only(&["node", "cluster"], found);
    let ((n_nodes, nodes_place), (per_node, _)) = (nodes?, devices?);
    let (inside, between) = self::links(&links, (n_nodes, per_node), found)?;
    let Device { memory, is_reserved, memory_place, flops, peak_flops } = device?;
    Some(Cluster {
        source: source.clone(),
        file: None,
        memory_place,
        nodes_place,
        n_nodes,
        per_node,
        memory,
        is_reserved,
        host,
        rates: Rates::even(flops),
        peak_flops,
        inside,
        between,
        fill: Vec::new(),
    })
}

fn host(table: &Table<'_, '_>, found: &mut Diagnostics) -> Option<Host> {
    table.only(&["memory", "bandwidth"], found);
    let memory = table.needed("memory", "\"2TiB\"", found)?;
    let bandwidth =
        table.get("bandwidth").map(|value| take(quantity("bandwidth", value, Dimension::Bandwidth, 1), found));
    let bytes = Bytes(take(quantity("memory", memory, Dimension::Memory, 1), found)?);
    Some(Host { memory: bytes, place: memory.span(), bandwidth: bandwidth.flatten() })
}

struct Device {
    memory: Bytes,
    is_reserved: bool,
    memory_place: std::ops::Range<usize>,
    flops: u64,
    peak_flops: Option<u64>,
}

fn device(table: &Table<'_, '_>, found: &mut Diagnostics) -> Option<Device> {
    table.only(&["memory", "reserved", "flops", "peak_flops"], found);
    let memory = memory(table, found);
    let flops = table.needed("flops", "\"600TFLOPS\"", found);
    let flops = flops.and_then(|value| Some((take(quantity("flops", value, Dimension::Operations, 1), found)?, value)));
    let peak =
        table.get("peak_flops").map(|value| take(quantity("peak_flops", value, Dimension::Operations, 1), found));
    if let (Some((reached, value)), Some(Some(peak))) = (flops, peak)
        && reached > peak
    {
        let message = "`flops`, which a device reaches, is more than its `peak_flops`".to_owned();
        found.push(error(&value.span(), "more than the peak", message).help("`flops` is what matrix products reach"));
        return None;
    }
    let peak_flops = match peak {
        Some(peak) => Some(peak?),
        None => None,
    };
    let (memory, memory_place) = memory?;
    let is_reserved = table.get("reserved").is_some();
    Some(Device { memory, is_reserved, memory_place, flops: flops?.0, peak_flops })
}

/// What a device has beyond what is reserved, and where its memory is written.
fn memory(table: &Table<'_, '_>, found: &mut Diagnostics) -> Option<(Bytes, std::ops::Range<usize>)> {
    let value = table.needed("memory", "\"80GiB\"", found)?;
    let memory = take(quantity("memory", value, Dimension::Memory, 1), found);
    let Some(reserved) = table.get("reserved") else { return Some((Bytes(memory?), value.span())) };
    let bytes = take(quantity("reserved", reserved, Dimension::Memory, 0), found)?;
    let memory = memory?;
    if bytes >= memory {
        let (bytes, memory) = (Bytes(bytes), Bytes(memory));
        let message = format!("{bytes} of a device's {memory} are reserved, so that nothing is left");
        found.push(error(&reserved.span(), "reserved", message).help(RESERVED));
        return None;
    }
    Some((Bytes(memory - bytes), value.span()))
}

/// Inside nodes, by node, and between them.
type Links = (Vec<Link>, Vec<Link>);

fn links(links: &Table<'_, '_>, (n_nodes, per_node): (u32, u32), found: &mut Diagnostics) -> Option<Links> {
    const KEYS: [&str; 2] = ["bandwidth", "latency"];
    let before = found.len();
    let n = n_nodes as usize;
    let node = links.table("node", found);
    let cluster = if n_nodes > 1 {
        links.needed_table("cluster", "the `bandwidth` and `latency` between two nodes", found)
    } else {
        links.table("cluster", found)
    };
    node.iter().chain(&cluster).for_each(|table| table.only(&KEYS, found));
    let mut column = |key: &str, of: Dimension, example: &str| {
        let outer = cluster.as_ref().and_then(|table| table.needed(key, example, found));
        let grid = outer.and_then(|value| grid(key, value, of, n, found));
        let inner = node.as_ref().and_then(|table| table.needed(key, example, found));
        let row = inner.and_then(|value| row(key, value, of, n, found));
        let by_node = (0..n).map(|node| {
            let diagonal = grid.as_ref().filter(|grid| grid.len() > 1).and_then(|grid| grid[node * n + node]);
            diagonal.or_else(|| row.as_ref().map(|row| row[node]))
        });
        (by_node.collect::<Vec<_>>(), grid.unwrap_or_default())
    };
    let bandwidth = column("bandwidth", Dimension::Bandwidth, "\"45GB/s\"");
    let latency = column("latency", Dimension::Time, "\"8us\"");
    if found.len() > before {
        return None;
    }
    let link =
        |(rate, nanos): (Option<u64>, Option<u64>)| Some(Link { latency: Ticks(nanos?), bytes_per_second: rate? });
    // A device alone on its node has no way inside it.
    let alone = Some(Link::NONE).filter(|_| per_node == 1);
    let inside = bandwidth.0.iter().zip(&latency.0).map(|(rate, nanos)| link((*rate, *nanos)).or(alone));
    let Some(inside) = inside.collect::<Option<Vec<Link>>>() else {
        let message = "nothing says how fast devices of one node reach each other".to_owned();
        found.push(error(&links.place, "in here", message).help("add `[links.node]` with `bandwidth` and `latency`"));
        return None;
    };
    // One that is said for all is repeated where the other is said for each pair.
    let length = bandwidth.1.len().max(latency.1.len());
    let at = |all: &[Option<u64>], place: usize| all.get(if all.len() == 1 { 0 } else { place }).copied().flatten();
    let between = (0..length).map(|place| link((at(&bandwidth.1, place), at(&latency.1, place))).unwrap_or(Link::NONE));
    Some((inside, if n > 1 { between.collect() } else { vec![Link::NONE] }))
}

/// The least that a quantity may be: no link is endlessly slow.
const fn least(of: Dimension) -> u64 {
    match of {
        Dimension::Bandwidth | Dimension::Memory | Dimension::Operations => 1,
        Dimension::Time => 0,
    }
}

/// One quantity for all nodes, or one for each.
fn row(key: &str, value: &Value<'_>, of: Dimension, n: usize, found: &mut Diagnostics) -> Option<Vec<u64>> {
    let DeValue::Array(items) = value.get_ref() else {
        let one = take(bounded(key, value, of), found)?;
        return Some(vec![one; n]);
    };
    if items.len() != n {
        let message = format!("`{key}` lists {} nodes, but the cluster has {n}", items.len());
        found.push(error(&value.span(), "this list", message).help("write one value for all nodes, or one for each"));
        return None;
    }
    items.iter().map(|item| take(bounded(key, item, of), found)).collect()
}

/// One quantity for every two nodes, or a row for each node; `"-"` on the diagonal says nothing.
fn grid(key: &str, value: &Value<'_>, of: Dimension, n: usize, found: &mut Diagnostics) -> Option<Vec<Option<u64>>> {
    let (rows, unit) = match value.get_ref() {
        DeValue::Array(rows) => (rows, None),
        DeValue::Table(entries) => {
            let name = format!("links.cluster.{key}");
            let table = Table { name, place: value.span(), entries };
            table.only(&["unit", "rows"], found);
            let unit = table.needed("unit", &format!("\"{}\"", unit_example(of)), found)?;
            let unit = take(unit_of(key, unit, of), found)?;
            let rows = table.needed("rows", "[[..], ..]", found)?;
            let DeValue::Array(list) = rows.get_ref() else {
                let message = format!("expected a list for `rows` of `{key}`, found {}", kind(rows));
                found.push(error(&rows.span(), "no list", message));
                return None;
            };
            (list, Some(unit))
        }
        _ => return take(bounded(key, value, of), found).map(|one| vec![Some(one)]),
    };
    let not_square = |value: &Value<'_>, what: String| {
        let message = format!("`{key}` has {what}, but the cluster has {n} nodes");
        error(&value.span(), "this many", message).help("write a row for each node, with a value for each node in it")
    };
    if rows.len() != n {
        found.push(not_square(value, format!("{} rows", rows.len())));
        return None;
    }
    let (before, mut all) = (found.len(), Vec::with_capacity(n * n));
    for (at, row) in rows.iter().enumerate() {
        match row.get_ref() {
            DeValue::Array(items) if items.len() == n => {
                let entries = items.iter().enumerate();
                all.extend(entries.map(|(to, item)| {
                    entry(key, item, of, unit, at == to).unwrap_or_else(|wrong| {
                        found.push(wrong);
                        None
                    })
                }));
            }
            DeValue::Array(items) => found.push(not_square(row, format!("{} values in row {at}", items.len()))),
            _ => {
                let message = format!("expected a list in row {at} of `{key}`, found {}", kind(row));
                found.push(error(&row.span(), "no list", message));
            }
        }
    }
    (found.len() == before).then_some(all)
}

/// An entry of a matrix.
fn entry(
    key: &str,
    item: &Value<'_>,
    of: Dimension,
    unit: Option<(&str, u64)>,
    is_diagonal: bool,
) -> Result<Option<u64>, Diagnostic> {
    match (item.get_ref(), unit) {
        (DeValue::String(text), _) if text.trim() == "-" && is_diagonal => Ok(None),
        (DeValue::Integer(number), Some((name, size))) => {
            let read = amount((key, number.as_str(), name), size, least(of), &item.span());
            read.and_then(|read| short(key, read, of, item)).map(Some)
        }
        (DeValue::Float(number), Some((name, size))) => {
            let read = amount((key, number.as_str(), name), size, least(of), &item.span());
            read.and_then(|read| short(key, read, of, item)).map(Some)
        }
        _ => bounded(key, item, of).map(Some),
    }
}

fn bounded(key: &str, value: &Value<'_>, of: Dimension) -> Result<u64, Diagnostic> {
    quantity(key, value, of, least(of)).and_then(|read| short(key, read, of, value))
}

/// Latencies are short.
fn short(key: &str, read: u64, of: Dimension, value: &Value<'_>) -> Result<u64, Diagnostic> {
    if of != Dimension::Time || read <= MOST_NANOS {
        return Ok(read);
    }
    Err(error(&value.span(), "too long", format!("`{key}` is more than a second: {} ms", Ticks(read))))
}

const fn unit_example(of: Dimension) -> &'static str {
    match of {
        Dimension::Time => "us",
        Dimension::Bandwidth | Dimension::Memory | Dimension::Operations => "GB/s",
    }
}

/// The unit of a whole matrix.
fn unit_of<'v>(key: &str, value: &'v Value<'_>, of: Dimension) -> Result<(&'v str, u64), Diagnostic> {
    let wrong = |label: &str, message| error(&value.span(), label, message);
    let DeValue::String(text) = value.get_ref() else {
        return Err(wrong("no text", format!("expected a text for the `unit` of `{key}`, found {}", kind(value))));
    };
    of.unit(text).map(|size| (text.as_ref(), size)).ok_or_else(|| {
        let one = wrong("not known", format!("`{text}` is not a unit of {}", of.words()));
        let place = one.labels.first().map(|label| label.span);
        let edit = place.zip(suggest::closest(text, of.unit_names()));
        let edit = edit.map(|(span, meant)| Edit { span, text: format!("\"{meant}\"") });
        Diagnostic { help: suggest::help(text, of.unit_names()), ..one }.edit_with(edit)
    })
}

fn take<T>(read: Result<T, Diagnostic>, found: &mut Diagnostics) -> Option<T> {
    read.map_err(|wrong| found.push(wrong)).ok()
}
