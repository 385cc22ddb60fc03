//! `show stat` as a table with named rows and columns.

/// The output of `show stat`.
#[derive(Debug, Clone)]
pub struct Statistics {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Statistics {
    /// Parses the command's output.
    pub fn read(text: &str) -> Self {
        let mut lines = text.lines().filter(|line| !line.is_empty());
        let title = lines.next().unwrap_or_default();
        let columns = fields(title.strip_prefix("# ").unwrap_or_default());
        Self { columns, rows: lines.map(fields).collect() }
    }

    /// Returns the names of the rows, each `proxy,name`.
    pub fn rows(&self) -> Vec<String> {
        self.rows.iter().map(|row| row[..2.min(row.len())].join(",")).collect()
    }

    /// Returns a value from the row `proxy,name`, or `None` if there is no such row.
    ///
    /// # Panics
    /// There is no such column.
    pub fn get(&self, row: &str, column: &str) -> Option<&str> {
        let at = self.position(column);
        let (proxy, name) = row.split_once(',').unwrap_or((row, ""));
        let own = self.rows.iter().find(|own| own.len() > 1 && own[0] == proxy && own[1] == name)?;
        own.get(at).map(String::as_str)
    }

    /// Returns a value; empty if there is no such row.
    ///
    /// # Panics
    /// There is no such column.
    pub fn value(&self, row: &str, column: &str) -> String {
        self.get(row, column).unwrap_or_default().to_owned()
    }

    /// Returns a value as a number; 0 if there is none.
    ///
    /// # Panics
    /// There is no such column.
    pub fn number(&self, row: &str, column: &str) -> u64 {
        self.get(row, column).and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    /// Returns the index of a column.
    ///
    /// # Panics
    /// There is no such column.
    pub fn position(&self, column: &str) -> usize {
        let at = self.columns.iter().position(|own| own == column);
        at.unwrap_or_else(|| panic!("no column `{column}` among {:?}", self.columns))
    }
}

/// Splits a CSV line. Quotes may contain commas, and are removed.
fn fields(line: &str) -> Vec<String> {
    let (mut all, mut field, mut quoted) = (Vec::new(), String::new(), false);
    for character in line.chars() {
        match character {
            '"' => quoted = !quoted,
            ',' if !quoted => all.push(std::mem::take(&mut field)),
            other => field.push(other),
        }
    }
    all.push(field);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_row_and_column_name() {
        let read = Statistics::read("# pxname,svname,last_chk,stot,\nb,s,\"a, b\",7,\nb,BACKEND,,8,\n\n");
        assert_eq!(read.rows(), ["b,s", "b,BACKEND"]);
        assert_eq!((read.get("b,s", "last_chk"), read.number("b,BACKEND", "stot")), (Some("a, b"), 8));
        assert_eq!((read.get("b,", "stot"), read.get("c,s", "stot")), (None, None));
    }
}
