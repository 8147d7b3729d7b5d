//! Where a RESP value ends, and which strings it holds.

/// The length of the whole value that these bytes begin with; none where more is to
/// come.
pub(super) fn whole(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|window| window == b"\r\n")?;
    let (kind, number) = (bytes.first()?, number(&bytes[1..line]));
    let mut end = line + 2;
    match (kind, number) {
        (b'$' | b'=' | b'!', Some(length)) => {
            end += length + 2;
            (end <= bytes.len()).then_some(end)
        }
        (b'*' | b'~' | b'>', Some(values)) => values_end(bytes, end, values),
        (b'%', Some(pairs)) => values_end(bytes, end, 2 * pairs),
        (b'|', Some(pairs)) => values_end(bytes, end, 2 * pairs + 1),
        _ => Some(end),
    }
}

fn values_end(bytes: &[u8], mut end: usize, values: usize) -> Option<usize> {
    for _ in 0..values {
        end += whole(&bytes[end..])?;
    }
    Some(end)
}

fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The strings of a whole array, or push; what else is in it is left out.
pub(super) fn strings(value: &[u8]) -> Vec<&[u8]> {
    let mut strings = Vec::new();
    let Some(mut at) = value.windows(2).position(|window| window == b"\r\n").map(|at| at + 2)
    else {
        return strings;
    };
    while let Some(length) = whole(&value[at..]) {
        let item = &value[at..at + length];
        if item.starts_with(b"$")
            && let Some(line) = item.windows(2).position(|window| window == b"\r\n")
        {
            strings.push(item.get(line + 2..length - 2).unwrap_or_default());
        }
        at += length;
    }
    strings
}

/// What a message says that the server sends unasked; none where this is an answer.
pub(super) fn message(value: &[u8]) -> Option<&[u8]> {
    match (value.first()?, &strings(value)[..]) {
        (b'>', [b"message", _, said]) => Some(said),
        _ => None,
    }
}

#[test]
fn values_end_where_they_end() {
    let values: [&[u8]; 6] = [
        b"+OK\r\n",
        b"$3\r\na\r\n\r\n",
        b"*2\r\n$-1\r\n:7\r\n",
        b"%1\r\n+proto\r\n*1\r\n_\r\n",
        b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\n\r\n\r\n",
        b"*0\r\n",
    ];
    for value in values {
        for cut in 0..value.len() {
            assert_eq!(whole(&value[..cut]), None, "{cut} of {}", value.escape_ascii());
        }
        assert_eq!(whole(&[value, b"+more\r\n"].concat()), Some(value.len()));
    }
    assert_eq!(message(values[4]), Some(&b"\r\n"[..]));
    assert_eq!(message(values[2]), None);
    assert_eq!(strings(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"), [b"GET".as_slice(), b"k"]);
}
