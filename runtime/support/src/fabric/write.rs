//! A topology as the text of its file.

use std::fmt::Write;

use super::{FabricTopology, VERSION};

pub(super) fn text(fabric: &FabricTopology) -> String {
    let mut out = format!("version = {VERSION}\n");
    for (name, class) in &fabric.classes {
        let (name, latency, gbs) = (quoted(name), class.latency_us, class.gbs);
        let _ = write!(out, "\n[classes.{name}]\nlatency_us = {latency:?}\ngbs = {gbs:?}\n");
    }
    for host in &fabric.hosts {
        let _ = write!(out, "\n[[hosts]]\nname = {}\n", quoted(&host.name));
        for device in &host.devices {
            let (name, kind) = (quoted(&device.name), quoted(&device.kind));
            let _ = write!(out, "[[hosts.devices]]\nname = {name}\nkind = {kind}\n");
            if let Some(gbs) = device.gbs {
                let _ = writeln!(out, "gbs = {gbs:?}");
            }
        }
    }
    for path in &fabric.paths {
        let (name, transport) = (quoted(&path.name), quoted(&path.transport));
        let class = quoted(&path.class);
        let _ =
            write!(out, "\n[[paths]]\nname = {name}\ntransport = {transport}\nclass = {class}\n");
        if !path.devices.is_empty() {
            let devices = path.devices.iter();
            let devices: Vec<String> = devices
                .map(|(host, name)| format!("{} = {}", quoted(host), quoted(name)))
                .collect();
            let _ = writeln!(out, "devices = {{ {} }}", devices.join(", "));
        }
    }
    for link in &fabric.links {
        let [a, b] = link.between.each_ref().map(|host| quoted(host));
        let (path, class) = (quoted(&link.path), quoted(&link.class));
        let _ = write!(out, "\n[[links]]\npath = {path}\nbetween = [{a}, {b}]\nclass = {class}\n");
    }
    out
}

/// Quotes a TOML string or key.
fn quoted(text: &str) -> String {
    let plain: String = text.chars().filter(|c| !c.is_control()).collect();
    format!("\"{}\"", plain.replace('\\', "\\\\").replace('"', "\\\""))
}
