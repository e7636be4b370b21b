# cmake --install: the shared library, its headers, the command line, and what
# find_package(longspan) needs. A static library would hand every consumer the libraries that
# longspan was built with, so installing is for the shared one.
if(NOT BUILD_SHARED_LIBS)
  message(STATUS "longspan: no install rules, they need BUILD_SHARED_LIBS=ON")
  return()
endif()

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(LONGSPAN_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/longspan)

install(TARGETS longspan EXPORT longspanTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/longspan
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_BINARY_DIR}/include/longspan/version.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/longspan)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/NOTICE
  DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(LONGSPAN_HAS_CUDNN)  # whose headers are code of the library
  install(FILES ${LONGSPAN_CUDNN_FRONTEND}/../LICENSE.txt DESTINATION ${CMAKE_INSTALL_DOCDIR}
          RENAME LICENSE.cudnn-frontend)
endif()

file(RELATIVE_PATH LONGSPAN_LIB_FROM_BIN
  ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set_target_properties(longspan_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${LONGSPAN_LIB_FROM_BIN}")
install(TARGETS longspan_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

install(EXPORT longspanTargets NAMESPACE longspan:: DESTINATION ${LONGSPAN_CMAKE_DIR})
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/longspanConfig.cmake.in ${PROJECT_BINARY_DIR}/longspanConfig.cmake
  INSTALL_DESTINATION ${LONGSPAN_CMAKE_DIR})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/longspanConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/longspanConfig.cmake ${PROJECT_BINARY_DIR}/longspanConfigVersion.cmake
  DESTINATION ${LONGSPAN_CMAKE_DIR})
