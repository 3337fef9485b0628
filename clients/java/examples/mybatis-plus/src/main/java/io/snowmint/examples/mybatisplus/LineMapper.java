package io.snowmint.examples.mybatisplus;

import com.baomidou.mybatisplus.core.mapper.BaseMapper;

import org.apache.ibatis.annotations.Mapper;

@Mapper
interface LineMapper extends BaseMapper<Line> {}
