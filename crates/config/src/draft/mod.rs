//! The configuration before names are resolved: sections and statements as written, the values that keyword functions parse from
//! them, and the rows of keyword tables.

pub mod acme;
pub mod args;
pub mod bind;
pub mod cache;
pub mod check;
pub mod discovery;
pub mod fcgi;
pub mod httpclient;
pub mod inherited;
pub mod keyword;
pub mod lua;
pub mod mail;
pub mod resolvers;
pub mod row;
pub mod section;
pub mod server;
pub mod settings;
pub mod spoe;
pub mod telemetry;
pub mod tls;
pub mod udp;

pub use section::{Draft, EngineFile, Section, SectionKind, Statement, is_name_character, section_names};
