use std::{collections::HashMap, sync::Arc};

use proptest::{collection::vec, prelude::*};
use serde::{Deserialize, Serializer};

use super::*;
use crate::{
    frame::Frame,
    log::{End, Log},
};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Report {
    title: String,
    pages: Vec<u64>,
    notes: HashMap<String, Option<f64>>,
}

fn report() -> Report {
    let notes = (0..20).map(|n| (format!("note {n}"), (n % 2 == 0).then_some(0.5)));
    Report { title: "Rome".into(), pages: vec![1, 2, u64::MAX], notes: notes.collect() }
}

/// As a layer uses it over a service of this response.
trait OfUnit<T>: Codec<(), T, String, Response = T, Extra = T, Body = ValueBody> {}
impl<T, C: Codec<(), T, String, Response = T, Extra = T, Body = ValueBody>> OfUnit<T> for C {}

fn codec<T: Serialize + serde::de::DeserializeOwned + Send + 'static>() -> impl OfUnit<T> {
    ValueCodec::<T>::new()
}

fn written<T: Serialize + serde::de::DeserializeOwned + Send + 'static>(value: T) -> (Head, Bytes) {
    let Ok(opened) = codec().open(value) else { panic!("the value is written") };
    assert_eq!(opened.body.size_hint().exact(), Some(opened.body.0.len() as u64));
    (opened.head, opened.body.0)
}

/// A body of these frames, that ends so or not yet.
fn body(frames: &[Frame], end: Option<End>) -> Replay {
    let log = Log::new(usize::MAX, None);
    frames.iter().for_each(|frame| log.push(frame.clone()));
    end.into_iter().for_each(|end| log.end(end));
    let head = Head { status: StatusCode::OK, headers: HeaderMap::new() };
    Replay::new(Arc::new(head), None, log.reader().unwrap(), None)
}

fn replay<T>(head: &Head, own: Option<T>, frames: &[Frame], end: Option<End>) -> Option<T>
where
    T: Serialize + serde::de::DeserializeOwned + Send + 'static,
{
    codec().replay(head, own, body(frames, end), FlightRole::FollowerRemote)
}

fn read<T>(head: &Head, bytes: impl Into<Bytes>) -> Option<T>
where
    T: Serialize + serde::de::DeserializeOwned + Send + 'static,
{
    replay(head, None, &[Frame::Data(bytes.into())], Some(End::Clean))
}

#[test]
fn what_is_written_is_read_back() {
    let (head, bytes) = written(report());
    assert_eq!(head.status, StatusCode::OK);
    assert_eq!(head.headers.len(), 1);
    assert_eq!(read(&head, bytes), Some(report()));
    let (head, bytes) = written(());
    assert!(bytes.is_empty());
    assert_eq!(replay(&head, None, &[], Some(End::Clean)), Some(()));
}

#[test]
fn its_own_caller_gets_the_value_itself() {
    /// Neither `Clone` nor read back as it is.
    #[derive(Serialize, Deserialize)]
    struct Own(#[serde(skip)] usize);
    let (head, _) = written(Own(1));
    // Whatever became of the frames.
    for end in [Some(End::Clean), Some(End::Broken("cut".into())), None] {
        assert_eq!(replay(&head, Some(Own(7)), &[], end).unwrap().0, 7);
    }
}

#[test]
fn a_value_that_is_not_whole_is_none() {
    let (head, bytes) = written(report());
    let [first, second] = [bytes.slice(..10), bytes.slice(10..)].map(Frame::Data);
    let [one, other, all] = [&[first.clone()][..], &[], &[first.clone(), second]];
    let broken = || Some(End::Broken("cut".into()));
    for frames in [one, other, all] {
        for end in [None, broken()] {
            assert_eq!(replay::<Report>(&head, None, frames, end), None);
        }
    }
    assert_eq!(replay(&head, None, all, Some(End::Clean)), Some(report()), "in two pieces");
    let trailers = [Frame::Data(bytes), Frame::Trailers(HeaderMap::new())];
    assert_eq!(replay::<Report>(&head, None, &trailers, Some(End::Clean)), None);
}

#[test]
fn damaged_and_foreign_records_are_none() {
    let (head, bytes) = written(report());
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1 << bit;
            // By chance alone the same value: entries of a map may be told twice.
            assert!(read::<Report>(&head, damaged).is_none_or(|read| read == report()), "{at}");
        }
        assert_eq!(read::<Report>(&head, bytes.slice(..at)), None, "{at}");
    }
    let longer = [&bytes[..], b"\0"].concat();
    assert_eq!(read::<Report>(&head, longer), None, "something follows the value");
    for mark in [None, Some(""), Some("1-"), Some("2-0000000000000000"), Some("1-0000000000000000")]
    {
        let mut head = head.clone();
        head.headers.remove(MARK);
        if let Some(mark) = mark {
            head.headers.insert(MARK, HeaderValue::from_static(mark));
        }
        assert_eq!(read::<Report>(&head, bytes.clone()), None, "{mark:?}");
    }
}

/// Each can be read as the others, in postcard.
#[test]
fn no_value_is_taken_for_that_of_another_type() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Old {
        from: u32,
        to: u32,
    }
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct New {
        to: u32,
        from: u32,
    }
    let (head, bytes) = written(Old { from: 1, to: 2 });
    assert!(postcard::from_bytes::<New>(&bytes).is_ok());
    assert_eq!(read::<New>(&head, bytes.clone()), None);
    assert_eq!(read::<(u32, u32)>(&head, bytes.clone()), None);
    assert_eq!(read::<[i8; 2]>(&head, bytes.clone()), None);
    assert_eq!(read(&head, bytes), Some(Old { from: 1, to: 2 }));
    let (head, bytes) = written("text".to_owned());
    assert_eq!(read::<Vec<u8>>(&head, bytes), None);
}

/// No room is made for what is not there: postcard believes no length beyond the end,
/// and serde makes room for at most a MiB of entries.
#[test]
fn lengths_beyond_the_end_are_none() {
    let most: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    let (head, _) = written(report());
    for short in 1..=most.len() {
        let mut length = most[..short].to_vec();
        length[short - 1] &= 0x7f;
        for bytes in [length.clone(), [&length[..], &[b'a'; 64]].concat()] {
            assert_eq!(read::<String>(&head, bytes.clone()), None);
            assert_eq!(read::<Vec<u8>>(&head, bytes.clone()), None);
            assert_eq!(read::<Vec<[u64; 32]>>(&head, bytes.clone()), None);
            assert_eq!(read::<HashMap<u64, String>>(&head, bytes.clone()), None);
            assert_eq!(read::<Vec<Vec<String>>>(&head, bytes.clone()), None);
            assert_eq!(read::<Report>(&head, bytes), None);
        }
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct LeavesOut {
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<u8>,
    pages: u8,
    lines: Vec<u8>,
}

/// Here postcard alone would read another value than was written.
#[test]
fn a_value_that_leaves_a_field_out_is_not_shared() {
    let value = || LeavesOut { note: None, pages: 1, lines: vec![9, 1, 5] };
    let bytes = postcard::to_stdvec(&value()).unwrap();
    let wrong = LeavesOut { note: Some(3), pages: 9, lines: vec![5] };
    assert_eq!(postcard::from_bytes::<LeavesOut>(&bytes).unwrap(), wrong);
    assert_eq!(codec().open(value()).err(), Some(value()));

    let (head, bytes) = written(wrong);
    assert_eq!(read::<LeavesOut>(&head, bytes).unwrap().note, Some(3));
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct OneWay {
    #[serde(skip_serializing)]
    secret: u8,
    pages: [u8; 2],
    #[serde(skip_serializing)]
    more: (),
    lines: Vec<u8>,
}

#[test]
fn a_value_that_reads_back_as_another_is_none() {
    let (head, bytes) = written(OneWay { secret: 9, pages: [1, 2], more: (), lines: vec![1, 0] });
    assert!(postcard::from_bytes::<OneWay>(&bytes).is_ok());
    assert_eq!(read::<OneWay>(&head, bytes), None);
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Number(u8),
}

#[test]
fn a_type_that_postcard_cannot_read_is_none() {
    let (head, bytes) = written(Untagged::Number(1));
    assert_eq!(read::<Untagged>(&head, bytes), None);
    let (head, bytes) = written(serde_json::json!({ "a": [1, null] }));
    assert_eq!(read::<serde_json::Value>(&head, bytes), None);
}

struct Panics;

impl Serialize for Panics {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("asked for by this test")
    }
}

impl<'de> Deserialize<'de> for Panics {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        panic!("asked for by this test")
    }
}

#[test]
fn a_panic_of_the_type_goes_no_further() {
    assert!(codec().open(Panics).is_err());
    let (head, bytes) = written(());
    assert!(read::<Panics>(&head, bytes).is_none());
}

#[test]
fn nothing_of_a_value_is_printed() {
    let body = ValueBody::new(Bytes::from_static(b"hidden"));
    let all = format!("{body:?} {:?}", ValueCodec::<Report>::new());
    assert!(!all.contains("hidden") && all.contains("Report"), "{all}");
}

proptest! {
    #[test]
    fn any_bytes_under_any_mark(bytes in vec(any::<u8>(), 0..200), own in any::<bool>()) {
        let (head, _) = written(report());
        let mut head = head;
        if !own {
            head.headers.insert(MARK, HeaderValue::from_bytes(&mark(gist(&String::new()).unwrap())).unwrap());
        }
        prop_assert_eq!(read::<Report>(&head, bytes.clone()), None);
        let text = read::<String>(&head, bytes);
        prop_assert!(text.is_none_or(|text| text.is_empty()));
    }
}
