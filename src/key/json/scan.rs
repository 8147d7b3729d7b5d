//! The scanner: reads a text without recursion, and refuses what is doubtful.

use super::{
    order::{Canonical, Member, Object, compare},
    pointer::{Place, Pointers},
};

/// Levels of arrays and objects.
const MOST_LEVELS: usize = 128;

/// Reads a JSON text; none where it is no JSON, or may mean different things to
/// different readers.
pub(in crate::key) fn scan(text: &[u8], pointers: &Pointers) -> Option<Canonical> {
    let text = std::str::from_utf8(text).ok()?;
    // Places are kept in 32 bits.
    u32::try_from(text.len()).ok()?;
    let scanner = Scanner {
        text,
        at: 0,
        pointers,
        // What is written is never longer than what was read.
        out: Canonical {
            flat: String::with_capacity(text.len()),
            objects: Vec::new(),
            members: Vec::new(),
        },
        open: Vec::new(),
        pending: Vec::new(),
    };
    scanner.run()
}

/// A string as the scanner writes it, without quotes.
pub(super) fn quote(string: &str) -> String {
    let mut out = String::with_capacity(string.len());
    string.chars().for_each(|char| push(&mut out, char));
    out
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
    pointers: &'a Pointers,
    out: Canonical,
    open: Vec<Open>,
    /// The members of all open objects so far.
    pending: Vec<Member>,
}

/// An array or object that is not yet at its end.
enum Open {
    Array { index: u64, place: Place },
    Object { object: u32, members: usize, place: Place },
}

enum Step {
    /// A value follows.
    Value(Place),
    /// A value has ended.
    Ended,
}

impl Scanner<'_> {
    fn run(mut self) -> Option<Canonical> {
        let mut step = Step::Value(self.pointers.root());
        loop {
            step = match step {
                Step::Value(place) => self.value(place)?,
                Step::Ended if self.open.is_empty() => break,
                Step::Ended => self.after_value()?,
            };
        }
        self.skip_space();
        (self.at == self.text.len()).then_some(self.out)
    }

    fn value(&mut self, place: Place) -> Option<Step> {
        self.skip_space();
        match self.peek()? {
            b'{' => {
                self.enter(b'{')?;
                let object = self.out.objects.len() as u32;
                let start = self.out.flat.len() as u32 - 1;
                self.out.objects.push(Object { start, end: 0, members: None, next: 0 });
                let members = self.pending.len();
                self.open.push(Open::Object { object, members, place });
                if self.skip_space_to(b'}') { self.close_object() } else { self.name(place) }
            }
            b'[' => {
                self.enter(b'[')?;
                if self.skip_space_to(b']') {
                    self.out.flat.push(']');
                    return Some(Step::Ended);
                }
                self.open.push(Open::Array { index: 0, place });
                Some(Step::Value(self.pointers.element(place, 0)))
            }
            b'"' => self.string().map(|()| Step::Ended),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'n' => self.word("null"),
            _ => self.number(),
        }
    }

    /// Reads on after a value inside an array or object.
    fn after_value(&mut self) -> Option<Step> {
        self.skip_space();
        let byte = self.next()?;
        let end = self.out.flat.len() as u32;
        match (self.open.last_mut()?, byte) {
            (Open::Array { index, place }, b',') => {
                *index += 1;
                let place = self.pointers.element(*place, *index);
                self.out.flat.push(',');
                Some(Step::Value(place))
            }
            (Open::Array { .. }, b']') => {
                self.out.flat.push(']');
                self.open.pop();
                Some(Step::Ended)
            }
            (Open::Object { place, .. }, b',') => {
                let place = *place;
                self.pending.last_mut()?.end = end;
                self.out.flat.push(',');
                self.name(place)
            }
            (Open::Object { .. }, b'}') => {
                self.pending.last_mut()?.end = end;
                self.close_object()
            }
            _ => None,
        }
    }

    fn name(&mut self, place: Place) -> Option<Step> {
        self.skip_space();
        let start = self.out.flat.len() as u32;
        if self.peek()? != b'"' {
            return None;
        }
        self.string()?;
        let name_end = self.out.flat.len() as u32;
        if !self.skip_space_to(b':') {
            return None;
        }
        self.out.flat.push(':');
        let object = self.out.objects.len() as u32;
        let mut member = Member { start, name_end, end: 0, object, left_out: false };
        let place = self.pointers.member(place, member.name(&self.out.flat));
        member.left_out = self.pointers.leaves_out(place);
        self.pending.push(member);
        Some(Step::Value(place))
    }

    fn close_object(&mut self) -> Option<Step> {
        let Some(Open::Object { object, members: first, .. }) = self.open.pop() else {
            return None;
        };
        let Canonical { flat, objects, members } = &mut self.out;
        flat.push('}');
        let own = &mut self.pending[first..];
        let in_order = |pair: &[Member]| compare(pair[0].name(flat), pair[1].name(flat)).is_lt();
        let mut as_it_is = own.windows(2).all(in_order);
        if !as_it_is {
            own.sort_unstable_by(|a, b| compare(a.name(flat), b.name(flat)));
            // Readers differ in which of two members of one name they take.
            if !own.windows(2).all(in_order) {
                return None;
            }
        }
        as_it_is &= !own.iter().any(|member| member.left_out);
        let next = objects.len() as u32;
        if as_it_is && next == object + 1 {
            objects.pop();
        } else {
            let from = members.len() as u32;
            if !as_it_is {
                members.extend(own.iter().filter(|member| !member.left_out));
            }
            let found = &mut objects[object as usize];
            found.members = (!as_it_is).then_some((from, members.len() as u32));
            (found.end, found.next) = (flat.len() as u32, next);
        }
        self.pending.truncate(first);
        Some(Step::Ended)
    }

    fn enter(&mut self, bracket: u8) -> Option<()> {
        self.at += 1;
        self.out.flat.push(bracket.into());
        (self.open.len() < MOST_LEVELS).then_some(())
    }

    fn string(&mut self) -> Option<()> {
        self.at += 1;
        self.out.flat.push('"');
        loop {
            let rest = &self.text.as_bytes()[self.at..];
            let run = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20))?;
            self.out.flat.push_str(&self.text[self.at..self.at + run]);
            self.at += run;
            match self.next()? {
                b'"' => break,
                b'\\' => {
                    let char = self.escaped()?;
                    push(&mut self.out.flat, char);
                }
                _ => return None,
            }
        }
        self.out.flat.push('"');
        Some(())
    }

    fn escaped(&mut self) -> Option<char> {
        Some(match self.next()? {
            byte @ (b'"' | b'\\' | b'/') => byte.into(),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => match self.hex()? {
                high @ 0xD800..0xDC00 => {
                    if self.next()? != b'\\' || self.next()? != b'u' {
                        return None;
                    }
                    let low = self.hex().filter(|low| (0xDC00..0xE000).contains(low))?;
                    char::from_u32(0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00))?
                }
                // A lone surrogate is none.
                code => char::from_u32(code)?,
            },
            _ => return None,
        })
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4)?;
        self.at += 4;
        digits.iter().try_fold(0, |code, digit| Some(code * 16 + char::from(*digit).to_digit(16)?))
    }

    fn number(&mut self) -> Option<Step> {
        let start = self.at;
        self.skip(b"-");
        if !self.skip(b"0") {
            self.digits()?;
        }
        if self.skip(b".") {
            self.digits()?;
        }
        if self.skip(b"eE") {
            self.skip(b"+-");
            self.digits()?;
        }
        self.out.flat.push_str(&self.text[start..self.at]);
        Some(Step::Ended)
    }

    /// One digit at least.
    fn digits(&mut self) -> Option<()> {
        let rest = &self.text.as_bytes()[self.at..];
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        (count > 0).then_some(())
    }

    fn word(&mut self, word: &str) -> Option<Step> {
        self.text[self.at..].starts_with(word).then_some(())?;
        self.at += word.len();
        self.out.flat.push_str(word);
        Some(Step::Ended)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// Skips one byte of these.
    fn skip(&mut self, bytes: &[u8]) -> bool {
        let found = self.peek().is_some_and(|byte| bytes.contains(&byte));
        self.at += usize::from(found);
        found
    }

    fn skip_space(&mut self) {
        while self.skip(b" \t\n\r") {}
    }

    fn skip_space_to(&mut self, byte: u8) -> bool {
        self.skip_space();
        self.skip(&[byte])
    }
}

/// Writes a character the way RFC 8785 has it.
fn push(out: &mut String, char: char) {
    match char {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\u{8}' => out.push_str("\\b"),
        '\t' => out.push_str("\\t"),
        '\n' => out.push_str("\\n"),
        '\u{c}' => out.push_str("\\f"),
        '\r' => out.push_str("\\r"),
        '\0'..'\u{20}' => {
            out.push_str("\\u00");
            out.extend(
                [u32::from(char) >> 4, u32::from(char) & 15]
                    .map(|digit| char::from_digit(digit, 16).unwrap_or_default()),
            );
        }
        other => out.push(other),
    }
}
