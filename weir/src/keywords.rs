//! `-dK`: prints the keywords of the tables, one a line, for tools that watch the language.

use config::keyword;

const CLASSES: &[(&str, &str)] = &[
    ("help", "this list"),
    ("all", "everything below"),
    ("cfg", "keywords of sections, with where they may stand"),
    ("bind", "parameters of bind lines"),
    ("srv", "parameters of server lines"),
];

/// Prints the classes named, separated by commas.
pub(crate) fn dump(classes: &str) {
    for class in classes.split(',') {
        match class {
            "all" => {
                sections();
                binds();
                servers();
            }
            "cfg" => sections(),
            "bind" => binds(),
            "srv" => servers(),
            _ => CLASSES.iter().for_each(|(name, what)| println!("{name:8}: {what}")),
        }
    }
}

fn sections() {
    println!("# List of registered configuration keywords:");
    for row in keyword::rows().filter(|row| row.is_supported()) {
        println!("\t{} {} # {}", row.name, row.signature, keyword::sections(row.places));
    }
}

fn binds() {
    println!("# List of bind keywords:");
    config::bind::TABLE.iter().for_each(|row| println!("\tbind <addr> {} {}", row.name, row.signature));
}

fn servers() {
    println!("# List of server keywords:");
    config::server::TABLE
        .iter()
        .for_each(|row| println!("\tserver <name> <addr> {} {}", row.name, row.signature));
}
