package io.snowmint.hibernate;

import io.snowmint.client.SnowmintClient;

import org.hibernate.MappingException;
import org.hibernate.engine.spi.SharedSessionContractImplementor;
import org.hibernate.generator.AnnotationBasedGenerator;
import org.hibernate.generator.BeforeExecutionGenerator;
import org.hibernate.generator.EventType;
import org.hibernate.generator.EventTypeSets;
import org.hibernate.generator.GeneratorCreationContext;

import java.lang.reflect.Field;
import java.lang.reflect.Member;
import java.lang.reflect.Method;
import java.util.EnumSet;
import java.util.function.Supplier;

/** Generates the ids of {@link SnowmintId}. Hibernate creates one for each id property. */
public class SnowmintIdGenerator
        implements BeforeExecutionGenerator, AnnotationBasedGenerator<SnowmintId> {
    private static final long serialVersionUID = 1;

    private transient Supplier<?> ids;

    /** Creates a generator for {@link #initialize}. */
    public SnowmintIdGenerator() {}

    @Override
    public void initialize(SnowmintId annotation, Member member, GeneratorCreationContext context) {
        SnowmintClient client =
                context.getServiceRegistry().requireService(SnowmintClientService.class).client();
        Class<?> type = type(member, context);
        if (type == Long.class || type == long.class) {
            ids = client.namespace(annotation.value())::next;
        } else if (type == String.class) {
            ids = client.texts(annotation.value())::next;
        } else {
            throw new MappingException(
                    "@SnowmintId of "
                            + member.getDeclaringClass().getName()
                            + "."
                            + member.getName()
                            + ": unsupported type "
                            + type.getName()
                            + ": expected long, Long or String");
        }
    }

    /** Returns the type of the id; that of a type variable comes from the mapping of the entity. */
    private static Class<?> type(Member member, GeneratorCreationContext context) {
        boolean isVariable;
        Class<?> type;
        if (member instanceof Field field) {
            type = field.getType();
            isVariable = field.getGenericType() != type;
        } else {
            Method getter = (Method) member;
            type = getter.getReturnType();
            isVariable = getter.getGenericReturnType() != type;
        }
        return isVariable ? context.getProperty().getType().getReturnedClass() : type;
    }

    @Override
    public Object generate(
            SharedSessionContractImplementor session,
            Object owner,
            Object currentValue,
            EventType eventType) {
        return ids.get();
    }

    @Override
    public EnumSet<EventType> getEventTypes() {
        return EventTypeSets.INSERT_ONLY;
    }
}
