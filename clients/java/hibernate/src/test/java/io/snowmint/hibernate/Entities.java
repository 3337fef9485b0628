package io.snowmint.hibernate;

import jakarta.persistence.Access;
import jakarta.persistence.AccessType;
import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.MappedSuperclass;

/** One entity for each type of id. */
final class Entities {
    private Entities() {}

    @Entity(name = "boxed")
    static class Boxed {
        @Id
        @SnowmintId("orders")
        Long id;
    }

    @Entity(name = "plain")
    static class Plain {
        @Id
        @SnowmintId("orders")
        long id;
    }

    @Entity(name = "text")
    static class Text {
        @Id
        @SnowmintId("tickets")
        String id;
    }

    @Entity(name = "getter")
    @Access(AccessType.PROPERTY)
    static class Getter {
        private Long id;

        @Id
        @SnowmintId("orders")
        Long getId() {
            return id;
        }

        void setId(Long id) {
            this.id = id;
        }
    }

    @MappedSuperclass
    abstract static class Base<T> {
        @Id
        @SnowmintId("tickets")
        T id;
    }

    @Entity(name = "inherited")
    static class Inherited extends Base<String> {}

    @Entity(name = "wrong")
    static class Wrong {
        @Id
        @SnowmintId("orders")
        Integer id;
    }
}
