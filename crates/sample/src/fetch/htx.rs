//! A message in HAProxy's HTX representation: a start line, one block per header, an end-of-headers block and one for the body
//! (manual, 7.3.7). Weir stores messages differently (`http::Head`); the sizes are those that HTX would need.

use http::Head;

use super::{Cursor, Fetch, row};
use crate::args::{Arg, ArgKind, Args, Spec, arg, text_of};
use crate::env::Env;
use crate::place::{Columns, is_response};
use crate::scope::Scope;
use crate::value::{Scratch, Type, Value};

const INDEX: &[Spec] = &[arg(ArgKind::Str)];

#[rustfmt::skip]
pub(super) static FETCHES: &[Fetch] = &[
    //  name                          arguments  gives       where            description
    row("internal.htx.data",          &[],       Type::Int,  Columns::EITHER, "bytes of data in the message blocks",     data).prepared(prepare),
    row("internal.htx.free",          &[],       Type::Int,  Columns::EITHER, "free bytes in the message buffer",        free).prepared(prepare),
    row("internal.htx.free_data",     &[],       Type::Int,  Columns::EITHER, "free bytes for data",                     free_data).prepared(prepare),
    row("internal.htx.has_eom",       &[],       Type::Bool, Columns::EITHER, "whether the message is complete",         has_eom).prepared(prepare),
    row("internal.htx.nbblks",        &[],       Type::Int,  Columns::EITHER, "number of blocks",                        nbblks).prepared(prepare),
    row("internal.htx.size",          &[],       Type::Int,  Columns::EITHER, "size of the message buffer",              size).prepared(prepare),
    row("internal.htx.used",          &[],       Type::Int,  Columns::EITHER, "bytes used by data and metadata",         used).prepared(prepare),
    row("internal.htx_blk.size",      INDEX,     Type::Int,  Columns::EITHER, "size of a block",                         blk_size).prepared(prepare_index),
    row("internal.htx_blk.type",      INDEX,     Type::Str,  Columns::EITHER, "type of a block",                         blk_type).prepared(prepare_index),
    row("internal.htx_blk.data",      INDEX,     Type::Bin,  Columns::EITHER, "contents of a data block",                blk_data).prepared(prepare_index),
    row("internal.htx_blk.hdrname",   INDEX,     Type::Str,  Columns::EITHER, "name in a header block",                  blk_hdrname).prepared(prepare_index),
    row("internal.htx_blk.hdrval",    INDEX,     Type::Str,  Columns::EITHER, "value in a header block",                 blk_hdrval).prepared(prepare_index),
    row("internal.htx_blk.start_line", INDEX,    Type::Str,  Columns::EITHER, "start line in a start line block",        blk_start_line).prepared(prepare_index),
];

/// The bytes of overhead per message and per block.
const MESSAGE: usize = 40;
const BLOCK: usize = 8;

/// Stores the direction after the optional index.
fn prepare(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    args.resize_with(1, || Arg::Missing);
    args.push(Arg::Int(i64::from(is_response(scope.place))));
    Ok(())
}

/// The index counts from 0; -1 stands for the tail.
fn prepare_index(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    args[0] = Arg::Int(match text_of(&args[0]) {
        b"head" | b"first" => 0,
        b"tail" => -1,
        other => crate::value::parse_int(other).filter(|index| *index >= 0).ok_or_else(|| {
            format!("`{}` is neither a number nor head, tail or first", String::from_utf8_lossy(other))
        })?,
    });
    prepare(args, scope)
}

/// A message in one direction.
struct HtxMessage<'a> {
    head: &'a Head,
    body: &'a [u8],
    complete: bool,
}

/// A block of a message.
enum HtxBlock<'a> {
    StartLine,
    Header(&'a [u8], &'a [u8]),
    EndOfHeaders,
    Data(&'a [u8]),
}

fn message<'a>(env: &Env<'a>, args: &Args) -> Option<HtxMessage<'a>> {
    let transaction = env.transaction.filter(|transaction| transaction.is_http)?;
    let of_response = args.int(1) == Some(1);
    let (head, body) = match of_response {
        true => (&transaction.response, env.response_bytes),
        false => (&transaction.request, env.request_bytes),
    };
    let expected = match of_response {
        true => head.response_body(transaction.request.method_id()),
        false => head.request_body(),
    };
    let complete = match expected {
        http::BodyLength::None => true,
        http::BodyLength::Length(length) => body.len() as u64 >= length,
        http::BodyLength::Chunked | http::BodyLength::UntilClose => false,
    };
    Some(HtxMessage { head, body, complete })
}

impl<'a> HtxMessage<'a> {
    fn blocks(&self) -> impl Iterator<Item = HtxBlock<'a>> + use<'a> {
        let headers = self.head.fields().map(|(name, value)| HtxBlock::Header(name, value));
        let data = Some(self.body).filter(|body| !body.is_empty()).map(HtxBlock::Data);
        [HtxBlock::StartLine].into_iter().chain(headers).chain([HtxBlock::EndOfHeaders]).chain(data)
    }

    /// The block at the index in the arguments; -1 is the last.
    fn block(&self, args: &Args) -> Option<HtxBlock<'a>> {
        match usize::try_from(args.int(0)?) {
            Ok(index) => self.blocks().nth(index),
            Err(_) => self.blocks().last(),
        }
    }

    fn start_line(&self) -> Scratch {
        let mut line = Scratch::new();
        self.head.write_start_line(&mut line);
        let end = line.len().saturating_sub(2);
        line.truncate(end);
        line
    }

    fn size_of(&self, block: &HtxBlock<'_>) -> usize {
        match block {
            HtxBlock::StartLine => self.start_line().len(),
            HtxBlock::Header(name, value) => name.len() + value.len(),
            HtxBlock::EndOfHeaders => 1,
            HtxBlock::Data(bytes) => bytes.len(),
        }
    }

    fn data(&self) -> usize {
        self.blocks().map(|block| self.size_of(&block)).sum()
    }

    fn used(&self) -> usize {
        self.data() + self.blocks().count() * BLOCK
    }
}

fn room() -> usize {
    runtime::buffer::small_size().saturating_sub(MESSAGE)
}

fn int<'a>(value: usize) -> Option<Value<'a>> {
    Some(Value::Int(value as i64))
}

fn data<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(message(env, args)?.data())
}

fn used<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(message(env, args)?.used())
}

fn size<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    message(env, args)?;
    int(room())
}

fn free<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(room().saturating_sub(message(env, args)?.used()))
}

/// The free space for data. An additional block would also need space for its descriptor.
fn free_data<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(room().saturating_sub(message(env, args)?.used() + BLOCK))
}

fn nbblks<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(message(env, args)?.blocks().count())
}

fn has_eom<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Bool(message(env, args)?.complete))
}

fn blk_size<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let message = message(env, args)?;
    int(message.block(args).map_or(0, |block| message.size_of(&block)))
}

fn blk_type<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let message = message(env, args)?;
    let name: &[u8] = match message.block(args) {
        Some(HtxBlock::StartLine) if message.head.is_response() => b"HTX_BLK_RES_SL",
        Some(HtxBlock::StartLine) => b"HTX_BLK_REQ_SL",
        Some(HtxBlock::Header(..)) => b"HTX_BLK_HDR",
        Some(HtxBlock::EndOfHeaders) => b"HTX_BLK_EOH",
        Some(HtxBlock::Data(_)) => b"HTX_BLK_DATA",
        None => b"HTX_BLK_UNUSED",
    };
    Some(Value::str(name))
}

fn blk_data<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::bin(match message(env, args)?.block(args) {
        Some(HtxBlock::Data(bytes)) => bytes,
        _ => b"",
    }))
}

fn blk_hdrname<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::str(match message(env, args)?.block(args) {
        Some(HtxBlock::Header(name, _)) => name,
        _ => b"",
    }))
}

fn blk_hdrval<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::str(match message(env, args)?.block(args) {
        Some(HtxBlock::Header(_, value)) => value,
        _ => b"",
    }))
}

fn blk_start_line<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let message = message(env, args)?;
    Some(match message.block(args) {
        Some(HtxBlock::StartLine) => Value::made(message.start_line()),
        _ => Value::str(b""),
    })
}
