//! What a value says of itself, as a number.

use std::fmt;

use serde::{
    Serialize, Serializer,
    ser::{
        self, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
        SerializeTupleStruct, SerializeTupleVariant,
    },
};

/// A digest over all that a value gives a serializer: names, kinds and contents.
///
/// The stored form has contents only, so that a reader of another type, or of
/// another release of the type, could take them for something else. Two values
/// with one gist are the same to all who see them through `Serialize`; only the
/// order within a sequence or map is left out, since sets and maps have none.
///
/// `None` for a value that leaves a field out this time: the stored form has no
/// word for that.
pub(super) fn gist<T: Serialize>(value: &T) -> Option<u64> {
    value.serialize(Gist).ok()
}

struct Gist;

/// A value that cannot be read back as it is written.
#[derive(Debug)]
struct Unfit;

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value cannot be read back as it is written")
    }
}

impl std::error::Error for Unfit {}

impl ser::Error for Unfit {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

/// The numbers are stored: none may change its meaning.
#[derive(Clone, Copy)]
enum Kind {
    Bool = 1,
    I8,
    I16,
    I32,
    I64,
    I128,
    U8,
    U16,
    U32,
    U64,
    U128,
    F32,
    F64,
    Char,
    Str,
    Bytes,
    None,
    Some,
    Unit,
    UnitStruct,
    Newtype,
    Variant,
    Seq,
    Tuple,
    Map,
    Struct,
}

const fn mix(a: u64, b: u64) -> u64 {
    let mixed = (a.rotate_left(25) ^ b).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

fn one(kind: Kind, content: u64) -> u64 {
    mix(mix(0, kind as u64), content)
}

fn wide(kind: Kind, content: u128) -> u64 {
    mix(one(kind, content as u64), (content >> 64) as u64)
}

fn bytes(kind: Kind, bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(one(kind, bytes.len() as u64), |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(hash, u64::from_le_bytes(word))
    })
}

fn named(kind: Kind, name: &str) -> u64 {
    mix(one(kind, 0), bytes(Kind::Str, name.as_bytes()))
}

fn variant(name: &str, index: u32, variant: &str) -> u64 {
    mix(mix(named(Kind::Variant, name), index.into()), bytes(Kind::Str, variant.as_bytes()))
}

fn of<T: Serialize + ?Sized>(value: &T) -> Result<u64, Unfit> {
    value.serialize(Gist)
}

/// Parts in their order.
struct Ordered(u64);

/// Parts in any order.
struct Unordered {
    kind: Kind,
    sum: u64,
    count: u64,
    key: u64,
}

impl Ordered {
    fn add<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unfit> {
        self.0 = mix(self.0, of(value)?);
        Ok(())
    }

    fn add_named<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), Unfit> {
        self.0 = mix(self.0, bytes(Kind::Str, name.as_bytes()));
        self.add(value)
    }
}

impl Unordered {
    fn new(kind: Kind) -> Self {
        Self { kind, sum: 0, count: 0, key: 0 }
    }

    fn add(&mut self, part: u64) {
        self.sum = self.sum.wrapping_add(part);
        self.count += 1;
    }

    fn end(&self) -> u64 {
        mix(one(self.kind, self.count), self.sum)
    }
}

macro_rules! plain {
    ($($method:ident($type:ty) => |$value:ident| $gist:expr;)*) => {
        $(fn $method(self, $value: $type) -> Result<u64, Unfit> { Ok($gist) })*
    };
}

impl Serializer for Gist {
    type Ok = u64;
    type Error = Unfit;
    type SerializeSeq = Unordered;
    type SerializeTuple = Ordered;
    type SerializeTupleStruct = Ordered;
    type SerializeTupleVariant = Ordered;
    type SerializeMap = Unordered;
    type SerializeStruct = Ordered;
    type SerializeStructVariant = Ordered;

    plain! {
        serialize_bool(bool) => |v| one(Kind::Bool, v.into());
        serialize_i8(i8) => |v| one(Kind::I8, v as u64);
        serialize_i16(i16) => |v| one(Kind::I16, v as u64);
        serialize_i32(i32) => |v| one(Kind::I32, v as u64);
        serialize_i64(i64) => |v| one(Kind::I64, v as u64);
        serialize_i128(i128) => |v| wide(Kind::I128, v as u128);
        serialize_u8(u8) => |v| one(Kind::U8, v.into());
        serialize_u16(u16) => |v| one(Kind::U16, v.into());
        serialize_u32(u32) => |v| one(Kind::U32, v.into());
        serialize_u64(u64) => |v| one(Kind::U64, v);
        serialize_u128(u128) => |v| wide(Kind::U128, v);
        serialize_f32(f32) => |v| one(Kind::F32, v.to_bits().into());
        serialize_f64(f64) => |v| one(Kind::F64, v.to_bits());
        serialize_char(char) => |v| one(Kind::Char, v.into());
        serialize_str(&str) => |v| bytes(Kind::Str, v.as_bytes());
        serialize_bytes(&[u8]) => |v| bytes(Kind::Bytes, v);
        serialize_unit_struct(&'static str) => |name| named(Kind::UnitStruct, name);
    }

    fn serialize_none(self) -> Result<u64, Unfit> {
        Ok(one(Kind::None, 0))
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<u64, Unfit> {
        Ok(one(Kind::Some, of(value)?))
    }

    fn serialize_unit(self) -> Result<u64, Unfit> {
        Ok(one(Kind::Unit, 0))
    }

    fn serialize_unit_variant(
        self,
        name: &'static str,
        index: u32,
        chosen: &'static str,
    ) -> Result<u64, Unfit> {
        Ok(variant(name, index, chosen))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<u64, Unfit> {
        Ok(mix(named(Kind::Newtype, name), of(value)?))
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        chosen: &'static str,
        value: &T,
    ) -> Result<u64, Unfit> {
        Ok(mix(variant(name, index, chosen), of(value)?))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Unordered, Unfit> {
        Ok(Unordered::new(Kind::Seq))
    }

    fn serialize_tuple(self, len: usize) -> Result<Ordered, Unfit> {
        Ok(Ordered(one(Kind::Tuple, len as u64)))
    }

    fn serialize_tuple_struct(self, name: &'static str, len: usize) -> Result<Ordered, Unfit> {
        Ok(Ordered(mix(named(Kind::Tuple, name), len as u64)))
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        chosen: &'static str,
        len: usize,
    ) -> Result<Ordered, Unfit> {
        Ok(Ordered(mix(variant(name, index, chosen), len as u64)))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Unordered, Unfit> {
        Ok(Unordered::new(Kind::Map))
    }

    fn serialize_struct(self, name: &'static str, len: usize) -> Result<Ordered, Unfit> {
        Ok(Ordered(mix(named(Kind::Struct, name), len as u64)))
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        chosen: &'static str,
        len: usize,
    ) -> Result<Ordered, Unfit> {
        Ok(Ordered(mix(variant(name, index, chosen), len as u64)))
    }

    // As postcard says of itself.
    fn is_human_readable(&self) -> bool {
        false
    }
}

impl SerializeSeq for Unordered {
    type Ok = u64;
    type Error = Unfit;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unfit> {
        self.add(of(value)?);
        Ok(())
    }

    fn end(self) -> Result<u64, Unfit> {
        Ok(Self::end(&self))
    }
}

impl SerializeMap for Unordered {
    type Ok = u64;
    type Error = Unfit;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Unfit> {
        self.key = of(key)?;
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unfit> {
        self.add(mix(self.key, of(value)?));
        Ok(())
    }

    fn end(self) -> Result<u64, Unfit> {
        Ok(Self::end(&self))
    }
}

macro_rules! ordered {
    ($($part:ident: $add:ident;)*) => {$(
        impl $part for Ordered {
            type Ok = u64;
            type Error = Unfit;

            fn $add<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unfit> {
                self.add(value)
            }

            fn end(self) -> Result<u64, Unfit> {
                Ok(self.0)
            }
        }
    )*};
}

ordered! {
    SerializeTuple: serialize_element;
    SerializeTupleStruct: serialize_field;
    SerializeTupleVariant: serialize_field;
}

macro_rules! with_names {
    ($($part:ident)*) => {$(
        impl $part for Ordered {
            type Ok = u64;
            type Error = Unfit;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), Unfit> {
                self.add_named(name, value)
            }

            fn skip_field(&mut self, _: &'static str) -> Result<(), Unfit> {
                Err(Unfit)
            }

            fn end(self) -> Result<u64, Unfit> {
                Ok(self.0)
            }
        }
    )*};
}

with_names! { SerializeStruct SerializeStructVariant }

#[cfg(test)]
mod tests;
