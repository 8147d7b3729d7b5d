use serde_json::json;

use super::*;

pub(super) fn canonical(text: &str) -> Option<String> {
    without(text, &[])
}

pub(super) fn without(text: &str, pointers: &[&str]) -> Option<String> {
    let mut tree = Pointers::default();
    pointers.iter().for_each(|pointer| tree.insert(pointer).unwrap());
    written(text.as_bytes(), &tree)
}

pub(super) fn written(text: &[u8], pointers: &Pointers) -> Option<String> {
    let scanned = scan(text, pointers)?;
    let mut out = Vec::new();
    scanned.write(|piece| out.extend_from_slice(piece));
    Some(String::from_utf8(out).unwrap())
}

#[test]
fn k4_members_white_space_and_escapes_do_not_count() {
    let one = r#"{"b":{"y":[1,{"q":null,"p":"/ü\n"}],"x":{}},"a":true}"#;
    let other = r#" { "a" : true ,
        "b":{"x":{ }, "y":[ 1 ,{"\u0070":"\/\u00FC\u000a","q":null}]}}"#;
    let expected = r#"{"a":true,"b":{"x":{},"y":[1,{"p":"/ü\n","q":null}]}}"#;
    assert_eq!(canonical(one).unwrap(), expected);
    assert_eq!(canonical(other).unwrap(), expected);
    assert_ne!(canonical("[1,2]"), canonical("[2,1]"));
    assert_ne!(canonical("1"), canonical("1.0"));
}

#[test]
fn members_are_in_the_order_of_rfc_8785() {
    // The example of its section 3.2.3.
    let text = r#"{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}"#;
    let expected = "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"\u{f6}\":7,\"\u{20ac}\":1,\"\u{1f600}\":5,\"\u{fb33}\":3}";
    assert_eq!(canonical(text).unwrap(), expected);
}

#[test]
fn strings_are_written_one_way() {
    let text = r#""\u0000\u001F\u007f\b\t\n\f\r\"\\\/\u0022\u005C\u002f€\u20AC\uD834\udd1e""#;
    let expected = "\"\\u0000\\u001f\u{7f}\\b\\t\\n\\f\\r\\\"\\\\/\\\"\\\\/€€\u{1d11e}\"";
    assert_eq!(canonical(text).unwrap(), expected);
}

#[test]
fn what_is_doubtful_has_no_canonical_form() {
    for text in [
        "",
        " ",
        "{",
        "}",
        "[",
        "]",
        "[}",
        "{]",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1]]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,}",
        "{\"a\" 1}",
        "{a:1}",
        "{1:1}",
        "{\"a\":1 \"b\":1}",
        "{\"a\":1]",
        "[1}",
        "1 2",
        "[] []",
        "tru",
        "truee",
        "True",
        "nul",
        "NaN",
        "Infinity",
        "-",
        "+1",
        "01",
        "-01",
        "1.",
        ".5",
        "1e",
        "1e+",
        "0x1",
        "1_0",
        "--1",
        "\"",
        "\"a",
        "\"\\\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\u+123\"",
        "\"\n\"",
        "\"\u{1f}\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\ud800\"",
        "\"\\ud800x\"",
        "\"\\ud800\\n\"",
        "\"\\ud83",
        "\u{feff}1",
        "'a'",
        "\u{a0}1",
        "\u{c}1",
        "// x\n1",
        "\"é",
        "\"\\é\"",
        "é",
        "[é]",
        "\"\\u00é\"",
        // Two of one name, however it is written, and wherever it stands.
        "{\"a\":1,\"a\":1}",
        "{\"a\":1,\"b\":2,\"\\u0061\":3}",
        "[{\"x\":{\"\\n\":1,\"\\u000a\":2}}]",
    ] {
        assert_eq!(canonical(text), None, "{text}");
    }
    assert!(scan(b"\"\xff\"", &Pointers::default()).is_none());
    assert!(scan(b"\"\xed\xa0\x80\"", &Pointers::default()).is_none());
    // Also within what is left out.
    for text in [r#"{"u":1,"u":2}"#, r#"{"u":{"a":1,"a":1}}"#, r#"{"u":"\ud800"}"#, r#"{"u":01}"#] {
        assert_eq!(without(text, &["/u"]), None, "{text}");
    }
}

#[test]
fn depth_is_bounded() {
    let nested = |levels: usize, open: &str, close: &str| {
        canonical(&(open.repeat(levels) + "1" + &close.repeat(levels)))
    };
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("{\"b\":0,\"a\":", "}")] {
        assert!(nested(128, open, close).is_some());
        assert!(nested(129, open, close).is_none());
        assert!(nested(300_000, open, "").is_none());
    }
}

#[test]
fn named_members_are_left_out() {
    let text =
        r#"{"user":"u","meta":{"id":1,"a/b":2,"m~n":3,"k":4},"list":[{"id":1},{"id":2}],"":5}"#;
    for (pointers, expected) in [
        (
            &["/user"][..],
            json!({"meta": {"id":1,"a/b":2,"m~n":3,"k":4}, "list":[{"id":1},{"id":2}], "":5}),
        ),
        (
            &["/meta/a~1b", "/meta/m~0n", "/"],
            json!({"user":"u","meta":{"id":1,"k":4},"list":[{"id":1},{"id":2}]}),
        ),
        (&["/list/1/id", "/meta", "/meta/k"], json!({"user":"u","list":[{"id":1},{}],"":5})),
        // None of these is there.
        (
            &["/User", "/meta/id/x", "/list/01/id", "/list/-/id", "/list/2/id", "/list/0"],
            serde_json::from_str(text).unwrap(),
        ),
    ] {
        assert_eq!(without(text, pointers), canonical(&expected.to_string()), "{pointers:?}");
    }
    assert_eq!(without(r#"{"user":1}"#, &["/user"]).unwrap(), "{}");
    assert_eq!(without(r#"{"\u0075ser\n":1,"a":2}"#, &["/user\n"]).unwrap(), r#"{"a":2}"#);
}

#[test]
fn what_is_no_pointer_is_refused() {
    for (pointer, text) in [
        ("user", "the JSON pointer \"user\" must begin with `/`"),
        ("", "the JSON pointer \"\" names the whole body"),
        ("/a~2", "the JSON pointer \"/a~2\" has a `~` without `0` or `1`"),
        ("/a~", "the JSON pointer \"/a~\" has a `~` without `0` or `1`"),
    ] {
        let error = Pointers::default().insert(pointer).unwrap_err();
        assert_eq!((error.pointer(), error.to_string().as_str()), (pointer, text));
    }
}

/// What a hostile text costs grows as its length does.
#[test]
fn hostile_texts_cost_little() {
    const SIZE: usize = 1 << 18;
    let fill = |piece: &dyn Fn(usize) -> String| {
        let mut text = String::new();
        for n in 0.. {
            text.push_str(if n > 0 { "," } else { "" });
            text.push_str(&piece(n));
            if text.len() >= SIZE {
                return text;
            }
        }
        unreachable!()
    };
    let deep = "{\"b\":".repeat(126);
    let texts = [
        format!("{{{}}}", fill(&|n| format!("\"{n}\":0"))),
        format!("{{{}}}", fill(&|n| format!("\"{}\":0", usize::MAX - n))),
        format!("{{{}}}", fill(&|n| format!("\"{}{n}\":0", "\\u0001".repeat(500)))),
        format!("[{}]", fill(&|_| "{\"b\":0,\"a\":0}".to_owned())),
        format!("[{}]", fill(&|_| "[]".to_owned())),
        format!("{deep}[{}]{}", fill(&|_| "{\"b\":0,\"a\":0}".to_owned()), ",\"a\":0}".repeat(126)),
        format!("\"{}\"", "\\n".repeat(SIZE / 2)),
    ];
    for text in texts {
        let mut pieces = 0;
        let mut bytes = 0;
        let scanned = scan(text.as_bytes(), &Pointers::default()).expect("JSON");
        scanned.write(|piece| {
            pieces += 1;
            bytes += piece.len();
        });
        // Each byte once, however deep; what is kept beside is a few times the text.
        assert!(bytes <= text.len() && pieces <= text.len(), "{}", &text[..40]);
        let kept = size_of_val(&scanned.objects[..]) + size_of_val(&scanned.members[..]);
        assert!(kept <= 8 * text.len(), "{kept}: {}", &text[..40]);
    }
}
