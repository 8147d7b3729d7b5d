//! The canonical text, written in one pass over the scanned one.

use std::cmp::Ordering;

/// A text without white space, its strings written one way, its members still in
/// the order in which they came; and what is known of its objects.
#[derive(Debug)]
pub(in crate::key) struct Canonical {
    pub(super) flat: String,
    /// Objects by where they begin.
    pub(super) objects: Vec<Object>,
    /// The members of objects that are to be written anew, sorted.
    pub(super) members: Vec<Member>,
}

/// An object, by places in the flat text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object {
    pub(super) start: u32,
    pub(super) end: u32,
    /// Its members among those to be written anew; `None` where it stays as it is.
    pub(super) members: Option<(u32, u32)>,
    /// The first object that does not begin inside of it.
    pub(super) next: u32,
}

/// A member with its name, by places in the flat text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) start: u32,
    pub(super) name_end: u32,
    pub(super) end: u32,
    /// The first object that begins at or after its start.
    pub(super) object: u32,
    pub(super) left_out: bool,
}

impl Member {
    /// The name as it is written, without its quotes.
    pub(super) fn name<'a>(&self, flat: &'a str) -> &'a str {
        &flat[self.start as usize + 1..self.name_end as usize - 1]
    }
}

/// What is still to be written.
enum Task {
    Text { at: u32, end: u32, object: u32 },
    Members { next: u32, last: u32, first: bool },
}

impl Canonical {
    /// Gives the canonical text piece by piece. Every byte is written once, however
    /// deep it stands.
    pub(in crate::key) fn write(&self, mut out: impl FnMut(&[u8])) {
        let mut tasks = vec![Task::Text { at: 0, end: self.flat.len() as u32, object: 0 }];
        while let Some(task) = tasks.pop() {
            match task {
                Task::Text { at, end, mut object } => {
                    let text =
                        |from: u32, to: u32| &self.flat.as_bytes()[from as usize..to as usize];
                    let inside = |place: u32| {
                        self.objects.get(place as usize).filter(|found| found.start < end)
                    };
                    while inside(object).is_some_and(|found| found.members.is_none()) {
                        object += 1;
                    }
                    let Some((found, (next, last))) =
                        inside(object).and_then(|found| Some((found, found.members?)))
                    else {
                        out(text(at, end));
                        continue;
                    };
                    out(text(at, found.start));
                    out(b"{");
                    tasks.push(Task::Text { at: found.end, end, object: found.next });
                    tasks.push(Task::Members { next, last, first: true });
                }
                Task::Members { next, last, .. } if next == last => out(b"}"),
                Task::Members { next, last, first } => {
                    if !first {
                        out(b",");
                    }
                    let Member { start, end, object, .. } = self.members[next as usize];
                    tasks.push(Task::Members { next: next + 1, last, first: false });
                    tasks.push(Task::Text { at: start, end, object });
                }
            }
        }
    }
}

/// Compares two names, as they are written, by the UTF-16 of what they mean.
pub(super) fn compare(a: &str, b: &str) -> Ordering {
    let (left, right) = (a.as_bytes(), b.as_bytes());
    let same = left.iter().zip(right).take_while(|(left, right)| left == right).count();
    let (Some(one), Some(other)) = (left.get(same), right.get(same)) else {
        return left.len().cmp(&right.len());
    };
    // Byte order is code point order, and that of UTF-16 where one of them is ASCII.
    // An escape may have begun up to five bytes before.
    let escape = left[same.saturating_sub(5)..same].contains(&b'\\');
    if !escape && *one != b'\\' && *other != b'\\' && (one.is_ascii() || other.is_ascii()) {
        return one.cmp(other);
    }
    ranks(a).cmp(ranks(b))
}

fn ranks(name: &str) -> impl Iterator<Item = u32> {
    let mut chars = name.chars();
    std::iter::from_fn(move || {
        Some(match chars.next()? {
            '\\' => unescape(&mut chars),
            other => other,
        })
    })
    .map(|char| match u32::from(char) {
        // Surrogates come before what is above them in the first plane.
        code @ 0x1_0000.. => 0xD800 + (code - 0x1_0000),
        code @ 0xE000..=0xFFFF => code + 0x11_0000,
        code => code,
    })
}

/// Reads on after a backslash; the scanner has written what comes.
fn unescape(chars: &mut std::str::Chars<'_>) -> char {
    match chars.next() {
        Some('b') => '\u{8}',
        Some('t') => '\t',
        Some('n') => '\n',
        Some('f') => '\u{c}',
        Some('r') => '\r',
        Some('u') => {
            let digits = chars.by_ref().take(4).filter_map(|digit| digit.to_digit(16));
            char::from_u32(digits.fold(0, |code, digit| code * 16 + digit)).unwrap_or_default()
        }
        other => other.unwrap_or('\\'),
    }
}
