//! The protocol as text, compared with what is kept beside it: a change of the
//! protocol can't go unnoticed.
#![cfg(feature = "grpc")]
#![allow(clippy::disallowed_methods, reason = "the protocol is compared with a file")]

use std::fmt::Write as _;
use std::path::Path;

use isthmus_wire::protocol::SPOKEN;
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    ServiceDescriptorProto,
};

const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/isthmus.descriptors"));
/// The environment variable that has the text written anew.
const UPDATE: &str = "ISTHMUS_UPDATE_GOLDEN";

#[test]
fn the_protocol_is_as_it_was() {
    let set = FileDescriptorSet::decode(DESCRIPTORS).unwrap();
    let text: String = set.file.iter().map(file).collect();
    let name = format!("isthmus.v{}.golden", SPOKEN.max);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto").join(&name);
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let changed: Vec<_> = text.lines().filter(|line| !kept.lines().any(|other| other == *line)).collect();
    let gone: Vec<_> = kept.lines().filter(|line| !text.lines().any(|other| other == *line)).collect();
    assert!(
        text == kept,
        "isthmus.proto is not as proto/{name} has it.\nnew: {changed:#?}\ngone: {gone:#?}\n\
         If version {} has been released: raise `max` of SPOKEN in crates/wire/src/protocol.rs, and `min` \
         too where this build can't speak the former version.\nThen write it anew: \
         {UPDATE}=1 scripts/cargo test -p isthmus-wire --features grpc --test golden",
        SPOKEN.max
    );
}

fn file(file: &FileDescriptorProto) -> String {
    let mut out = format!("package {}\n", file.package());
    file.service.iter().for_each(|one| service(&mut out, one));
    file.message_type.iter().for_each(|one| message(&mut out, "", one));
    file.enum_type.iter().for_each(|one| values(&mut out, one));
    out
}

fn service(out: &mut String, service: &ServiceDescriptorProto) {
    let _ = writeln!(out, "\nservice {}", service.name());
    let stream = |is: bool| if is { "stream " } else { "" };
    for method in &service.method {
        let (from, to) = (stream(method.client_streaming()), stream(method.server_streaming()));
        let (input, output) = (short(method.input_type()), short(method.output_type()));
        let _ = writeln!(out, "  {}({from}{input}) returns ({to}{output})", method.name());
    }
}

fn message(out: &mut String, within: &str, message_type: &DescriptorProto) {
    let name = format!("{within}{}", message_type.name());
    let _ = writeln!(out, "\nmessage {name}");
    for field in &message_type.field {
        let oneof = field.oneof_index.and_then(|index| message_type.oneof_decl.get(index as usize));
        let oneof = oneof.map(|oneof| format!(" (one of {})", oneof.name())).unwrap_or_default();
        let repeated = if field.label() == Label::Repeated { "repeated " } else { "" };
        let _ = writeln!(out, "  {} {repeated}{} {}{oneof}", field.number(), kind(field), field.name());
    }
    for nested in &message_type.nested_type {
        message(out, &format!("{name}."), nested);
    }
}

fn values(out: &mut String, enum_type: &EnumDescriptorProto) {
    let _ = writeln!(out, "\nenum {}", enum_type.name());
    for value in &enum_type.value {
        let _ = writeln!(out, "  {} {}", value.number(), value.name());
    }
}

fn kind(field: &FieldDescriptorProto) -> String {
    match field.r#type() {
        Type::Message | Type::Enum => short(field.type_name()).to_owned(),
        scalar => scalar.as_str_name().trim_start_matches("TYPE_").to_lowercase(),
    }
}

/// A type's name within the package.
fn short(name: &str) -> &str {
    name.trim_start_matches(".isthmus.v1.")
}
