//! The page itself, in a headless Chromium where there is one.
//!
//! `PLAYGROUND_SHOTS=folder cargo nextest run --test examples playground_pictures` leaves
//! pictures of it there.

use std::path::PathBuf;

use serde_json::Value;

use super::{QUICK, chromium::Page};
use crate::program::Server;

/// A playground and its page; none where there is no browser, which is said.
fn open(args: &[&str]) -> Option<(Server, Page)> {
    let server = Server::start("playground", args);
    let page = Page::open(&format!("http://{}/", server.address));
    if page.is_none() {
        eprintln!("no Chromium on the path: the page is not looked at");
    }
    let mut page = page?;
    page.resize(1280, 1000, "light");
    page.until("document.querySelectorAll('.node[data-health=up]').length === 3");
    Some((server, page))
}

/// Presses a node's button by the name that a screen reader says.
fn press(page: &mut Page, name: &str) {
    page.until(&format!("document.querySelector('button[aria-label=\"{name}\"]')"));
    page.get(&format!("document.querySelector('button[aria-label=\"{name}\"]').click()"));
}

fn until_told(page: &mut Page, what: &str) -> String {
    let line = format!(
        "[...document.querySelectorAll('#story span')].map(line => line.textContent)
            .find(line => /{what}/.test(line)) ?? ''"
    );
    page.until(&line).as_str().expect("a line").to_owned()
}

fn owner(page: &mut Page) -> String {
    let name = page.until("document.querySelector('.node[data-part=run] h2')?.textContent ?? ''");
    name.as_str().and_then(|name| name.strip_prefix("Node ")).expect("a node").to_owned()
}

/// Text that is not read well: its element, and its contrast with what is behind it.
const FAINT: &str = r"(() => {
    const parse = (color) => color.match(/[\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map((part) => part / 255)
        .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
        .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
    const behind = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const color = parse(getComputedStyle(at).backgroundColor);
            if (color.length === 3 || color[3] === 1) return color;
        }
        return [255, 255, 255];
    };
    const faint = [];
    for (const element of document.querySelectorAll('body *:not(svg *):not(.hidden)')) {
        const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
        if (!own || element.getClientRects().length === 0) continue;
        const [a, b] = [light(parse(getComputedStyle(element).color)), light(behind(element))];
        const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (contrast < 4.5) faint.push(`${element.outerHTML.slice(0, 80)}: ${contrast.toFixed(2)}`);
    }
    return faint;
})()";

/// Elements that stand out of the page, or whose text is cut off, at this width.
const WIDE: &str = "[...document.querySelectorAll('body *:not(svg *):not(.hidden)')]
    .filter((element) => element.getBoundingClientRect().right > innerWidth + 0.5
        || element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 0
            && !['INPUT', 'OL'].includes(element.tagName)
            && getComputedStyle(element).display !== 'inline')
    .map((element) => element.outerHTML.slice(0, 80))";

/// One test, for one browser: it takes its time to start.
#[test]
fn playground_page() {
    let Some((_server, mut page)) = open(&QUICK) else { return };
    shows_a_takeover(&mut page);
    fits_and_is_read_well(&mut page);
}

fn shows_a_takeover(page: &mut Page) {
    // All by the keyboard: to the field, past it, and the first button.
    page.get("document.getElementById('callers').focus()");
    page.press("Tab", 9);
    let focused = page.get("document.activeElement.value");
    assert_eq!(focused, "answer");
    assert_ne!(page.get("getComputedStyle(document.activeElement).outlineStyle"), "none");
    page.press("Enter", 13);
    let owner = owner(page);
    page.until("document.querySelectorAll('.part[data-is=wait]').length === 2");
    press(page, &format!("Freeze node {owner}"));
    page.until("document.querySelector('.node[data-health=frozen] .health')?.textContent ?? ''");
    until_told(page, &format!("took over with token 2, after the lease of node {owner}"));
    press(page, &format!("Thaw node {owner}"));
    until_told(page, "token 2 is greater");
    until_told(page, "^All 12 callers have their answer, all the same");
    // What matters is read out, and no more than that.
    page.until("/is greater|All 12/.test(document.getElementById('said').textContent)");
    assert_eq!(page.get("document.getElementById('story').getAttribute('aria-live')"), "off");
    page.until("document.querySelectorAll('#lanes rect.run').length >= 2");
}

/// In all states that a node can be in.
fn fits_and_is_read_well(page: &mut Page) {
    page.get("document.querySelector('button[value=stream]').click()");
    press(page, "Kill node C");
    press(page, "Cut off node B");
    press(page, "Freeze node A");
    for health in ["dead", "frozen"] {
        page.until(&format!("document.querySelector('.node[data-health={health}]') !== null"));
    }
    page.until("!document.querySelector('.node:nth-child(2) .way[hidden]')");
    for scheme in ["light", "dark"] {
        for (width, height) in [(360, 740), (800, 900), (1280, 1000), (1920, 1080)] {
            page.resize(width, height, scheme);
            let none = Value::Array(Vec::new());
            assert_eq!(page.get(WIDE), none, "{width}, {scheme}");
            assert_eq!(page.get(FAINT), none, "{width}, {scheme}");
        }
    }
    let nameless = "[...document.querySelectorAll('button, input')].filter((element) =>
        !(element.textContent.trim() || element.ariaLabel || element.labels?.length)).length";
    assert_eq!(page.get(nameless), 0);
}

/// Pictures, where somebody asks for them.
#[test]
fn playground_pictures() {
    let Some(folder) = std::env::var_os("PLAYGROUND_SHOTS").map(PathBuf::from) else { return };
    let Some((_server, mut page)) = open(&[]) else { return };
    std::fs::create_dir_all(&folder).expect("the folder");
    let shoot = |page: &mut Page, name: &str| {
        for (look, width, height) in [("wide", 1280, 900), ("phone", 360, 740)] {
            for scheme in ["light", "dark"] {
                page.resize(width, height, scheme);
                std::thread::sleep(std::time::Duration::from_millis(150));
                let file = folder.join(format!("{name}-{look}-{scheme}.png"));
                std::fs::write(&file, page.picture()).expect("a file");
            }
        }
        page.resize(1280, 900, "light");
    };
    shoot(&mut page, "idle");
    page.get("document.querySelector('button[value=answer]').click()");
    until_told(&mut page, "^All 12");
    page.get("document.querySelector('button[value=stream]').click()");
    let first = owner(&mut page);
    std::thread::sleep(std::time::Duration::from_millis(2500));
    shoot(&mut page, "stream");
    press(&mut page, &format!("Freeze node {first}"));
    until_told(&mut page, "took over");
    std::thread::sleep(std::time::Duration::from_millis(3500));
    shoot(&mut page, "takeover");
    press(&mut page, &format!("Thaw node {first}"));
    until_told(&mut page, "^All 12 .* stream");
    press(&mut page, "Kill node C");
    page.until("document.querySelector('.node[data-health=dead]')?.tagName");
    press(&mut page, "Cut off node B");
    page.get("document.querySelector('button[value=answer]').click()");
    std::thread::sleep(std::time::Duration::from_millis(3000));
    shoot(&mut page, "faults");
    let Some((_server, mut page)) = open(&["--memory"]) else { return };
    page.get("document.querySelector('button[value=stream]').click()");
    page.until("document.querySelectorAll('.heard:empty').length === 0");
    shoot(&mut page, "memory");
}
