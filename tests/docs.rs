//! The pages of the guide: their links lead somewhere, and each setting is listed once.

use std::{
    collections::BTreeMap,
    fs,
    path::{Component, Path, PathBuf},
};

fn root() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

/// All pages, by their paths from the root.
fn pages() -> BTreeMap<PathBuf, String> {
    let folders = [root(), root().join("docs")];
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let pages = files.map(|file| file.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|ext| ext == "md"));
    pages
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            (path.strip_prefix(root()).unwrap().to_owned(), text)
        })
        .collect()
}

/// Without blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// What a heading is called in links.
fn anchor(heading: &str) -> String {
    let name = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = name.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn links(line: &str) -> impl Iterator<Item = &str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let defined = line.starts_with('[').then(|| line.split("]: ").nth(1)).flatten();
    inline.chain(defined)
}

/// The path of a link from a page, without `..`.
fn resolved(page: &Path, link: &str) -> PathBuf {
    let mut path = page.parent().unwrap().to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => assert!(path.pop(), "{link} leads out of the project"),
            part => path.push(part),
        }
    }
    path
}

#[test]
fn every_link_leads_somewhere() {
    let pages = pages();
    let mut seen = 0;
    for (page, text) in &pages {
        for link in prose(text).flat_map(links).filter(|link| !link.starts_with("http")) {
            seen += 1;
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { resolved(page, file) };
            assert!(root().join(&target).exists(), "{}: {link}", page.display());
            if !heading.is_empty() {
                let text = pages.get(&target).unwrap_or_else(|| panic!("{link} is no page"));
                let mut headings = prose(text).filter(|line| line.starts_with('#')).map(anchor);
                assert!(headings.any(|of| of == heading), "{}: {link}", page.display());
            }
        }
    }
    assert!(seen > 30, "{seen} links");
}

/// What a builder's methods are called that give it back changed.
fn settings(file: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(file)).unwrap();
    let methods = text.split("pub fn ").skip(1).filter_map(|method| method.split_once('('));
    let changes = methods.filter(|(_, rest)| {
        let (takes, gives) = rest.split_once(") -> ").unwrap_or_default();
        let by_value = takes.trim_start().trim_start_matches("mut ").starts_with("self");
        by_value && (gives.starts_with("Self") || gives.starts_with("SingleFlightLayer"))
    });
    changes.map(|(name, _)| name.split('<').next().unwrap().to_owned()).collect()
}

#[test]
fn every_setting_is_listed_once_with_its_default_and_its_reason() {
    let pages = pages();
    let rows: Vec<Vec<&str>> = pages[Path::new("docs/settings.md")]
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let files =
        ["src/layer.rs", "src/config/builder.rs", "src/store/redis/builder.rs"].map(settings);
    for setting in files.iter().flatten() {
        let name = format!("`{setting}`");
        let mut of = rows.iter().filter(|row| row[0].split(", ").any(|of| of == name));
        let row = of.next().unwrap_or_else(|| panic!("{setting} is not listed"));
        assert!(of.next().is_none(), "{setting} is listed twice");
        assert!(row.len() == 3 && row.iter().all(|cell| !cell.is_empty()), "{row:?}");
    }
    assert!(files.iter().all(|settings| settings.len() > 3), "{files:?}");
}

/// What is read on the page is what was compiled.
#[test]
fn every_page_with_code_is_compiled() {
    let lib = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    for (page, text) in pages() {
        if text.contains("```rust") {
            let page = page.display().to_string();
            assert!(lib.contains(&format!("\"{page}\"")), "{page} is not in src/lib.rs");
        }
    }
}

/// The docs that a source file begins with.
fn docs_of(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    text.lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(|line| format!("{line}\n"))
        .collect()
}

#[test]
fn every_example_says_how_it_is_run_and_every_one_that_is_named_is_there() {
    let main = |entry: PathBuf| if entry.is_dir() { entry.join("main.rs") } else { entry };
    let entries = fs::read_dir(root().join("examples")).unwrap();
    let entries = entries.map(|entry| entry.unwrap().path());
    let examples: BTreeMap<String, String> = entries
        .map(|entry| (entry.file_stem().unwrap().to_str().unwrap().to_owned(), main(entry)))
        .filter(|(_, main)| main.exists())
        .map(|(name, main)| (name, docs_of(&main)))
        .collect();
    let runs = |text: &str| -> Vec<String> {
        let rest = text.split("cargo run --example ").skip(1);
        rest.map(|rest| rest.split([' ', '\n', '`', ',']).next().unwrap().to_owned()).collect()
    };
    for (name, docs) in &examples {
        assert!(runs(docs).contains(name), "{name}: {docs}");
    }
    let pages = pages();
    for named in pages.values().chain(examples.values()).flat_map(|text| runs(text)) {
        assert!(examples.contains_key(&named), "{named} is no example");
    }
    assert!(examples.len() > 8, "{examples:?}");
}

/// One as it is by default, and one that is set up otherwise.
#[test]
fn every_public_module_begins_with_two_examples() {
    let lib = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let modules = lib.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    let modules: Vec<_> = modules.filter(|name| *name != "fuzzing").collect();
    for name in &modules {
        let docs = docs_of(&root().join("src").join(name).join("mod.rs"));
        let fences = docs.lines().filter(|line| line.trim_start().starts_with("```")).count();
        assert!(fences >= 4, "{name} has {} examples", fences / 2);
    }
    assert!(modules.len() >= 4, "{modules:?}");
}
