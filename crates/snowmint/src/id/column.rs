//! An id as a column of a SQL database: a `BIGINT`, through whatever sqlx does for an `i64` there.
//! Reading a negative number from a column is an error.
//!
//! To sqlx, MySQL's `BIGINT UNSIGNED` is another type: reading an id from such a column is a type error. Ids fit the signed
//! `BIGINT`: declare the column that way, or read it as `CAST(id AS SIGNED)`.

use sqlx::decode::Decode;
use sqlx::encode::{Encode, IsNull};
use sqlx::error::BoxDynError;
use sqlx::{Database, Type};

use super::Id;

impl<DB: Database> Type<DB> for Id
where
    i64: Type<DB>,
{
    fn type_info() -> DB::TypeInfo {
        <i64 as Type<DB>>::type_info()
    }

    fn compatible(column: &DB::TypeInfo) -> bool {
        <i64 as Type<DB>>::compatible(column)
    }
}

impl<'q, DB: Database> Encode<'q, DB> for Id
where
    i64: Encode<'q, DB>,
{
    fn encode_by_ref(&self, buffer: &mut DB::ArgumentBuffer) -> Result<IsNull, BoxDynError> {
        self.as_i64().encode(buffer)
    }
}

impl<'r, DB: Database> Decode<'r, DB> for Id
where
    i64: Decode<'r, DB>,
{
    fn decode(value: DB::ValueRef<'r>) -> Result<Self, BoxDynError> {
        Ok(Self::try_from(i64::decode(value)?)?)
    }
}

/// `WHERE id = ANY($1)` with a `Vec<Id>`, columns of type `BIGINT[]`, and transparent newtypes.
#[cfg(feature = "sqlx-postgres")]
impl sqlx::postgres::PgHasArrayType for Id {
    fn array_type_info() -> sqlx::postgres::PgTypeInfo {
        <i64 as sqlx::postgres::PgHasArrayType>::array_type_info()
    }
}
